"""What runs as the live page's events say it."""

from dataclasses import asdict
from typing import Any, Final

from kakeya import FleetSums, PoolQueue, WatchedSession, WatchedWorker
from kakeya_shared.process.bulletin import Unseen

Key = tuple[str, str]
"""Of a thing: its kind and its name."""
Thing = WatchedSession | WatchedWorker | PoolQueue | FleetSums

Event = dict[str, Any]

_LISTS: Final = {"session": ("sessions", "gone_sessions"), "worker": ("workers", "gone_workers")} | {
    "queue": ("queues", "gone_queues")
}


def event(unseen: Unseen[Key, Thing], at: float) -> Event:
    """What a page has not seen yet; of kinds of which nothing has changed it has no list.

    Args:
        at: Unix time in seconds, by the runtime's clock.
    """
    said: Event = {"begins": unseen.begins, "at": at}
    for change in unseen.changes:
        kind, name = change.key
        if kind == "fleet":
            said["fleet"] = asdict(change.value)
            continue
        there, gone = _LISTS[kind]
        if change.is_removed:
            said.setdefault(gone, []).append(name)
        else:
            said.setdefault(there, []).append(_document(change.value))
    return said


def _document(thing: Thing) -> dict[str, Any]:
    document = asdict(thing)
    if isinstance(thing, WatchedSession):
        document["retained"] = [[part.start, part.stop] for part in thing.retained]
    return document
