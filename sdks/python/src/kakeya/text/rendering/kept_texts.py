"""Texts that were made already, kept by what they were made of."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

_KEY_BYTES = 16


def key_of(*made_of: object) -> bytes:
    """A digest of values by their `repr`, which for what JSON can say is the values themselves."""
    return blake2b(repr(made_of).encode(), digest_size=_KEY_BYTES).digest()


class KeptTexts:
    """The latest that were asked for. Its methods may be called from several threads at once.

    Args:
        max_letters: of all together; a longer text is not kept.
    """

    def __init__(self, max_letters: int) -> None:
        self._max_letters = max_letters
        self._num_letters = 0
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes, make: Callable[[], str]) -> str:
        """The text; made where it is not there. Raises as `make` does."""
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        text = make()
        with self._lock:
            if key not in self._texts and len(text) <= self._max_letters:
                self._texts[key] = text
                self._num_letters += len(text)
            while self._num_letters > self._max_letters:
                self._num_letters -= len(self._texts.popitem(last=False)[1])
        return text
