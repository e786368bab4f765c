"""What a worker has committed of a session: from its messages, and on to clients."""

from dataclasses import dataclass

from kakeya_router.store.session_record import LaneState, parse_ranges, ranges_text
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api


@dataclass(frozen=True, slots=True)
class Opened:
    """A lane that is there now, with the sinks and the window that the worker chose."""

    lane: LaneState
    sink: int
    window: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """What is committed, and the tokens of it that were generated beyond what is journaled."""

    lane: LaneState
    token_ids: tuple[int, ...]


def from_worker(message: worker_api.LaneState) -> LaneState:
    return LaneState(
        message.history_length,
        message.kv_live_bytes,
        ranges_text(range(part.start, part.end) for part in message.retained),
        message.num_rewinds,
        message.history_digest if message.HasField("history_digest") else None,
    )


def retained(text: str) -> list[api.TokenRange]:
    """As a lane and a session record have it."""
    return [api.TokenRange(start=part.start, end=part.stop) for part in parse_ranges(text)]
