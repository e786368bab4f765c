"""What was made already, kept by what it was made of."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sized
from hashlib import blake2b
from typing import Generic, TypeVar

Made = TypeVar("Made", bound=Sized)

_KEY_BYTES = 16


def key_of(*made_of: object) -> bytes:
    """A digest of values by their `repr`, which for what JSON can say is the values themselves."""
    return blake2b(repr(made_of).encode(), digest_size=_KEY_BYTES).digest()


class Kept(Generic[Made]):
    """The latest that were asked for. Its methods may be called from several threads at once.

    Args:
        max_length: of all together, such as letters of texts; what is longer by itself is not kept.
    """

    def __init__(self, max_length: int) -> None:
        self._max_length = max_length
        self._length = 0
        self._kept: OrderedDict[bytes, Made] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes, make: Callable[[], Made]) -> Made:
        """It; made where it is not there. Raises as `make` does."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            if key not in self._kept and len(made) <= self._max_length:
                self._kept[key] = made
                self._length += len(made)
            while self._length > self._max_length:
                self._length -= len(self._kept.popitem(last=False)[1])
        return made

    def forget(self, key: bytes) -> None:
        """It is not kept any more, if it was."""
        with self._lock:
            if key in self._kept:
                self._length -= len(self._kept.pop(key))
