"""What workers answer: behind `WorkerClient` nothing sees their messages."""

from dataclasses import dataclass
from enum import Enum, auto

from kakeya_router.store.session_record import LaneState, ranges_text
from kakeya_stubs.worker.v1 import verifier_pb2 as pb


@dataclass(frozen=True, slots=True)
class Opened:
    """A lane that is there now, with the sinks and the window that the worker chose."""

    lane: LaneState
    sink: int
    window: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Tokens that are prefilled."""

    lane: LaneState
    prefill_duration_seconds: float
    evicted_token_count: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """What is committed, and the tokens of it that were generated beyond what is journaled."""

    lane: LaneState
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WrittenSnapshot:
    """A file that holds the session at `length`; its digest, None: not known."""

    name: str
    length: int
    size_bytes: int
    history_digest: int | None


@dataclass(frozen=True, slots=True)
class TokenDetail:
    """Of a sampled token: its log-probability, and the likeliest ids with theirs."""

    logprob: float
    top_logprobs: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a Generate; no detail: none was asked for, or it is not known any more."""

    token_id: int
    detail: TokenDetail | None = None


class Finish(Enum):
    """Why a Generate ended."""

    UNKNOWN = auto()
    MAX_TOKENS = auto()
    EOS = auto()
    STOP_SEQUENCE = auto()
    TRUNCATED = auto()


@dataclass(frozen=True, slots=True)
class Done:
    """The last word of a Generate."""

    finish: Finish
    lane: LaneState
    generated_token_count: int
    prefill_duration_seconds: float
    total_duration_seconds: float
    evicted_token_count: int


_FINISHES = {
    pb.FINISH_REASON_MAX_TOKENS: Finish.MAX_TOKENS,
    pb.FINISH_REASON_EOS: Finish.EOS,
    pb.FINISH_REASON_STOP_SEQUENCE: Finish.STOP_SEQUENCE,
    pb.FINISH_REASON_TRUNCATED: Finish.TRUNCATED,
}


def lane(message: pb.LaneState) -> LaneState:
    return LaneState(
        message.history_length,
        message.kv_live_bytes,
        ranges_text(range(part.start, part.end) for part in message.retained),
        message.num_rewinds,
        message.history_digest if message.HasField("history_digest") else None,
    )


def opened(message: pb.OpenSessionResponse) -> Opened:
    return Opened(lane(message.lane), message.sink, message.window)


def appended(message: pb.AppendResponse) -> Appended:
    return Appended(lane(message.lane), message.prefill_duration_seconds, message.evicted_token_count)


def stopped(message: pb.StopResponse) -> Stopped:
    return Stopped(lane(message.lane), tuple(message.token_ids))


def written(message: pb.WriteSnapshotResponse) -> WrittenSnapshot:
    digest = message.history_digest if message.HasField("history_digest") else None
    return WrittenSnapshot(message.name, message.length, message.size_bytes, digest)


def generated(message: pb.GenerateResponse) -> Token | Done:
    if message.HasField("done"):
        return _done(message.done)
    if not message.HasField("detail"):
        return Token(message.token_id)
    top_logprobs = tuple((top.token_id, top.logprob) for top in message.detail.top_logprobs)
    return Token(message.token_id, TokenDetail(message.detail.logprob, top_logprobs))


def _done(message: pb.GenerateDone) -> Done:
    return Done(
        _FINISHES.get(message.finish_reason, Finish.UNKNOWN),
        lane(message.lane),
        message.generated_token_count,
        message.prefill_duration_seconds,
        message.total_duration_seconds,
        message.evicted_token_count,
    )
