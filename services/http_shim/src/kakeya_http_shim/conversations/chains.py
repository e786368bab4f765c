"""Chains of tags that need not be made anew: of conversations that go on with the messages of an earlier request.

What is kept of a conversation gives each of its requests the same message objects, so that they are looked at and not
hashed. A client that sends a conversation anew makes new ones, which `tags.chain` is for.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from weakref import ref

from kakeya_http_shim.conversations import tags
from kakeya_http_shim.requests.messages import Message, SystemMessage

_MAX_MESSAGES: Final = 32_768
"""Of all that are remembered: some 5 MiB."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A chain behind the head of a conversation.

    Attributes:
        messages: which may be gone by now.
        links: behind each of them.
    """

    messages: Sequence[ref[Message]]
    links: Sequence[bytes]

    def num_common(self, messages: Sequence[Message]) -> int:
        """How many of these it begins with."""
        pairs = zip(self.messages, messages, strict=False)
        different = (place for place, (known, message) in enumerate(pairs) if known() is not message)
        return next(different, min(len(self.messages), len(messages)))


class Chains:
    """The latest. Its methods may be called from several threads at once."""

    def __init__(self, max_messages: int = _MAX_MESSAGES) -> None:
        self._max_messages = max_messages
        self._num_messages = 0
        self._latest: OrderedDict[tuple[bytes, int], _Made] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, root: bytes, messages: Sequence[Message]) -> list[bytes]:
        """As `tags.chain` has it."""
        # A head is sent anew by each request; the same one gives the same link.
        begin = next((place for place, each in enumerate(messages) if not isinstance(each, SystemMessage)), None)
        if begin is None:
            return tags.chain(root, messages)
        head, behind = tags.chain(root, messages[:begin]), messages[begin:]
        key = head[-1], id(behind[0])
        with self._lock:
            known = self._latest.get(key)
        num_known = known.num_common(behind) if known else 0
        links, refs = (known.links[:num_known], known.messages[:num_known]) if known else ((), ())
        found = tags.chain(root, messages, [*head, *links])
        self._remember(key, _Made([*refs, *map(ref, behind[num_known:])], found[begin + 1 :]))
        return found

    def _remember(self, key: tuple[bytes, int], made: _Made) -> None:
        with self._lock:
            before = self._latest.pop(key, None)
            self._num_messages += len(made.links) - (len(before.links) if before else 0)
            self._latest[key] = made
            while self._num_messages > self._max_messages:
                self._num_messages -= len(self._latest.popitem(last=False)[1].links)
