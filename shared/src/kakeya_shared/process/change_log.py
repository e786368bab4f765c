"""Things by key, from which any number of viewers at their own pace learn what has changed since they last looked.

The log knows no viewers: each remembers the version that it has seen. Who is slow finds the latest value of each thing
that has changed meanwhile, once, however often it changed.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Who looks again only after more removals gets everything anew.
_MAX_REMOVED: Final = 4096


@dataclass(frozen=True, slots=True)
class Change(Generic[K, V]):
    """A thing as it is now, or as it was last before it was removed."""

    key: K
    value: V
    is_removed: bool


class ChangeLog(Generic[K, V]):
    """What there is, in the order of its last changes.

    Args:
        max_removed: removals that are remembered.

    Attributes:
        version: rises with each change.
    """

    def __init__(self, max_removed: int = _MAX_REMOVED) -> None:
        self.version = 0
        self._max_removed = max_removed
        self._there: dict[K, tuple[int, V]] = {}
        self._removed: dict[K, tuple[int, V]] = {}
        self._forgotten_version = 0

    def put(self, key: K, value: V) -> None:
        """Has the thing be this; that is no change where it was so already."""
        before = self._there.get(key)
        if before is not None and before[1] == value:
            return
        self._there.pop(key, None)  # what changes comes last
        self._removed.pop(key, None)
        self.version += 1
        self._there[key] = (self.version, value)

    def remove(self, key: K) -> None:
        """Has the thing be gone; that is no change where there was none."""
        before = self._there.pop(key, None)
        if before is None:
            return
        self.version += 1
        self._removed[key] = (self.version, before[1])
        if len(self._removed) > self._max_removed:
            oldest = next(iter(self._removed))
            self._forgotten_version, _ = self._removed.pop(oldest)

    def keys(self) -> list[K]:
        """Of what there is."""
        return [*self._there]

    def all(self) -> list[Change[K, V]]:
        """What there is, for who has seen nothing yet."""
        return [Change(key, value, is_removed=False) for key, (_, value) in self._there.items()]

    def since(self, version: int) -> list[Change[K, V]] | None:
        """What has changed after a version, in O(changes); None: not known any more, `all` tells it."""
        if version < self._forgotten_version:
            return None
        there = [Change(key, value, is_removed=False) for key, value in _after(self._there, version)]
        return [*(Change(key, value, is_removed=True) for key, value in _after(self._removed, version)), *there]


def _after(entries: dict[K, tuple[int, V]], version: int) -> Iterator[tuple[K, V]]:
    for key in reversed(entries):
        changed, value = entries[key]
        if changed <= version:
            return
        yield key, value
