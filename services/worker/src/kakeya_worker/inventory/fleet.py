"""What many sessions take: workers, Redis, the snapshot store. The formulas and their figures: ops/scaling.md."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from kakeya_worker.inventory.footprint import Footprint

REDIS_BYTES: Final = 4 << 10
"""Of an idle session in Redis, beside its journal."""
REDIS_BYTES_STORED: Final = 7 << 10
"""Likewise, where workers have a snapshot store: with where its snapshots are."""
JOURNAL_TOKEN_BYTES: Final = 9
TAG_BYTES: Final = 36 * 210
"""Of a chat over HTTP, at most."""
MAX_SNAPSHOTS: Final = 3
"""Of a session, as seen so far."""
SNAPSHOT_BYTES: Final = 2560
"""Of each, beside the lane's live bytes."""
SPARE_WORKERS: Final = 1
"""They have room for the sessions of one that is lost."""


class NoRoom(Exception):
    """Not one lane fits a worker."""


@dataclass(frozen=True)
class Wanted:
    """Attributes:
    num_sessions: all that there are.
    num_at_once: of them, that are to hold a lane at the same time.
    num_tokens: of a session's history.
    num_turn_tokens: of its last turn.
    worker_bytes: that a worker has for weights and lanes.
    has_store: whether workers have a snapshot store.
    """

    num_sessions: int
    num_at_once: int
    num_tokens: int
    num_turn_tokens: int
    worker_bytes: int
    has_store: bool


@dataclass(frozen=True)
class Fleet:
    """What it takes, in bytes where no other unit is named.

    Attributes:
        live_bytes: of a session's lane, at most.
        num_lanes: of a worker.
        num_workers: the spare one with them.
        redis_bytes: of all sessions.
        tag_bytes: that chats over HTTP have in Redis beside that, at most.
        store_bytes: of all files; 0 without a store.
    """

    weights_bytes: int
    token_bytes: int
    sink: int
    window: int
    lane_bytes: int
    live_bytes: int
    num_lanes: int
    num_workers: int
    redis_bytes: int
    tag_bytes: int
    store_bytes: int

    @property
    def document(self) -> dict[str, Any]:
        return asdict(self)


def fleet(takes: Footprint, wanted: Wanted) -> Fleet:
    """For sessions of a model that takes this much. Raises NoRoom."""
    num_lanes = (wanted.worker_bytes - takes.weights) // takes.lane
    if num_lanes < 1:
        raise NoRoom
    live_bytes = min(wanted.num_tokens, takes.sink + takes.window) * takes.token
    if wanted.has_store:
        journaled = min(wanted.num_tokens, wanted.num_turn_tokens)
        of_redis = REDIS_BYTES_STORED + JOURNAL_TOKEN_BYTES * journaled
    else:
        of_redis = REDIS_BYTES + JOURNAL_TOKEN_BYTES * wanted.num_tokens
    of_store = MAX_SNAPSHOTS * (live_bytes + SNAPSHOT_BYTES) if wanted.has_store else 0
    return Fleet(
        weights_bytes=takes.weights,
        token_bytes=takes.token,
        sink=takes.sink,
        window=takes.window,
        lane_bytes=takes.lane,
        live_bytes=live_bytes,
        num_lanes=num_lanes,
        num_workers=-(-wanted.num_at_once // num_lanes) + SPARE_WORKERS,
        redis_bytes=wanted.num_sessions * of_redis,
        tag_bytes=wanted.num_sessions * TAG_BYTES,
        store_bytes=wanted.num_sessions * of_store,
    )
