"""What the calls answer: plain values, without protobuf."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from kakeya_stubs.v1 import runtime_pb2


class StopReason(StrEnum):
    """Why a generation ended."""

    UNSPECIFIED = "unspecified"
    MAX_TOKENS = "max_tokens"
    EOS = "eos"
    CANCELLED = "cancelled"
    TRUNCATED = "truncated"
    STOP_SEQUENCE = "stop_sequence"

    @classmethod
    def from_wire(cls, value: int) -> "StopReason":
        """A reason that this version does not know is UNSPECIFIED."""
        if value not in runtime_pb2.StopReason.values():
            return cls.UNSPECIFIED
        name = runtime_pb2.StopReason.Name(runtime_pb2.StopReason.ValueType(value))
        return cls[name.removeprefix("STOP_REASON_")]


class OverflowPolicy(StrEnum):
    """What happens when the history outgrows sink and window."""

    EVICT = "evict"
    """The oldest tokens of the window are forgotten."""
    REFUSE = "refuse"
    """Nothing is: an append that does not fit raises HistoryFull, a generation stops as TRUNCATED."""

    @property
    def wire(self) -> runtime_pb2.OverflowPolicy.ValueType:
        return runtime_pb2.OverflowPolicy.Value(f"OVERFLOW_POLICY_{self.name}")


class SessionState(StrEnum):
    """Where a session stands."""

    UNSPECIFIED = "unspecified"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    FAILED = "failed"
    LOST = "lost"
    PARKED = "parked"

    @classmethod
    def from_wire(cls, value: int) -> "SessionState":
        """A state that this version does not know is UNSPECIFIED."""
        if value not in runtime_pb2.SessionState.values():
            return cls.UNSPECIFIED
        name = runtime_pb2.SessionState.Name(runtime_pb2.SessionState.ValueType(value))
        return cls[name.removeprefix("SESSION_STATE_")]


def _ranges(retained: Iterable[runtime_pb2.TokenRange]) -> tuple[range, ...]:
    return tuple(range(part.start, part.end) for part in retained)


class Sight:
    """What the model can see of a session's history; every result that describes a session has it."""

    __slots__ = ()
    history_length: int
    retained: tuple[range, ...]

    @property
    def num_forgotten_tokens(self) -> int | None:
        """Tokens of the history that the model cannot see any more; 0: it sees all of it.

        None: the session is parked and nothing is held of it now, or the router, an older one, did not say what is.
        """
        if self.history_length and not self.retained:
            return None
        return self.history_length - sum(map(len, self.retained))


@dataclass(frozen=True, slots=True)
class AppendResult(Sight):
    """After an append.

    Attributes:
        history_length: tokens of the session so far.
        kv_live_bytes: bytes of KV that the verifier really holds for the session now.
        prefill_seconds: time that the forward passes over the new tokens took.
        num_evicted_tokens: tokens that left the window because of this append.
        retained: what is kept of the history, as indices into it, ascending.
    """

    history_length: int
    kv_live_bytes: int
    prefill_seconds: float
    num_evicted_tokens: int
    retained: tuple[range, ...]

    @classmethod
    def from_wire(cls, response: runtime_pb2.AppendTokensResponse) -> Self:
        return cls(
            history_length=response.history_length,
            kv_live_bytes=response.kv_live_bytes,
            prefill_seconds=response.prefill_duration_seconds,
            num_evicted_tokens=response.evicted_token_count,
            retained=_ranges(response.retained),
        )


@dataclass(frozen=True, slots=True)
class RewindResult(Sight):
    """After a rewind; attributes as in AppendResult."""

    history_length: int
    kv_live_bytes: int
    retained: tuple[range, ...]

    @classmethod
    def from_wire(cls, response: runtime_pb2.RewindSessionResponse) -> Self:
        return cls(
            history_length=response.history_length,
            kv_live_bytes=response.kv_live_bytes,
            retained=_ranges(response.retained),
        )


@dataclass(frozen=True, slots=True)
class Truncation:
    """What the model cannot see any more at the start of a generation.

    Attributes:
        num_dropped_tokens: tokens of the history that it does not see.
        retained: what it sees, as indices into the history, ascending.
    """

    num_dropped_tokens: int
    retained: tuple[range, ...]

    @classmethod
    def from_wire(cls, truncated: runtime_pb2.HistoryTruncated) -> Self:
        return cls(num_dropped_tokens=truncated.dropped_token_count, retained=_ranges(truncated.retained))


@dataclass(frozen=True, slots=True)
class TokenDetail:
    """How likely a token was.

    Log-probabilities are natural logarithms, of the raw logits' softmax: before bias, penalties and temperature.

    Attributes:
        token_id: the token.
        logprob: its log-probability. None: nobody knows it any more, as it was on its way when a connection broke or a
            router died; the token itself was found again.
        top_logprobs: those of the likeliest ids by id, descending; as many as were asked for, none beside None.
    """

    token_id: int
    logprob: float | None
    top_logprobs: dict[int, float]

    @classmethod
    def from_wire(cls, response: runtime_pb2.GenerateResponse) -> Self:
        logprob = response.detail.logprob if response.HasField("detail") else None
        top_logprobs = {top.token_id: top.logprob for top in response.detail.top_logprobs}
        return cls(token_id=response.token_id, logprob=logprob, top_logprobs=top_logprobs)


@dataclass(frozen=True, slots=True)
class GenerateResult(Sight):
    """At the end of a generation.

    Attributes:
        stop_reason: why it ended.
        num_tokens: tokens that were generated, the EOS token included.
        prefill_seconds: prefill time of this turn's appends.
        total_seconds: time the whole generation took on the server.
        seed: the seed that was used, given or drawn; the same seed gives the same tokens again.
        op_id: names the operation in the runtime's logs and traces.
        num_evicted_tokens: tokens that left the window because of this generation.
        history_length: tokens of the session so far.
        kv_live_bytes: bytes of KV that the verifier really holds for the session now.
        retained: what is kept of the history, as indices into it, ascending.
    """

    stop_reason: StopReason
    num_tokens: int
    prefill_seconds: float
    total_seconds: float
    seed: int
    op_id: str
    num_evicted_tokens: int
    history_length: int
    kv_live_bytes: int
    retained: tuple[range, ...]

    @classmethod
    def from_wire(cls, done: runtime_pb2.GenerateDone) -> Self:
        return cls(
            stop_reason=StopReason.from_wire(done.stop_reason),
            num_tokens=done.generated_token_count,
            prefill_seconds=done.prefill_duration_seconds,
            total_seconds=done.total_duration_seconds,
            seed=done.seed,
            op_id=done.op_id,
            num_evicted_tokens=done.evicted_token_count,
            history_length=done.history_length,
            kv_live_bytes=done.kv_live_bytes,
            retained=_ranges(done.retained),
        )


@dataclass(frozen=True, slots=True)
class SessionInfo(Sight):
    """A session as the router has it on record.

    Attributes:
        history_length: tokens of the session so far.
        kv_live_bytes: bytes of KV that the verifier really holds for the session now.
        num_inv1_violations: times the lane differed from what the history demands.
        num_inv2_violations: times the committed position fell without a rewind.
        idle_seconds: since its last operation.
        state: where it stands.
        reserved_bytes: its whole lane, slack included.
        retained: what is kept of the history, as indices into it, ascending.
        exact: whether its bits depend on its tokens, sink, window and the fingerprint alone; not any more once it has
            gone on under another fingerprint.
        fingerprint: digest of all that the bits depend on, of the worker that it is on, or was on last.
        model: what serves it.
        worker: id of the worker that holds its lane; empty while it is parked.
        epoch: rises with each new lease on the session.
        boundaries: history lengths at which its last turns ended, at most four, ascending: where others can branch off.
        inexact_resume: whether it may go on under another fingerprint.
    """

    history_length: int
    kv_live_bytes: int
    num_inv1_violations: int
    num_inv2_violations: int
    idle_seconds: float
    state: SessionState
    reserved_bytes: int
    retained: tuple[range, ...]
    exact: bool
    fingerprint: str
    model: str
    worker: str
    epoch: int
    boundaries: tuple[int, ...] = ()
    inexact_resume: bool = False

    @classmethod
    def from_wire(cls, response: runtime_pb2.GetSessionInfoResponse) -> Self:
        return cls(
            history_length=response.history_length,
            kv_live_bytes=response.kv_live_bytes,
            num_inv1_violations=response.cache_invariant_inv1_violations,
            num_inv2_violations=response.cache_invariant_inv2_violations,
            idle_seconds=response.idle_seconds,
            state=SessionState.from_wire(response.state),
            reserved_bytes=response.reserved_bytes,
            retained=_ranges(response.retained),
            exact=response.exact,
            fingerprint=response.fingerprint,
            model=response.model,
            worker=response.worker,
            epoch=response.epoch,
            boundaries=tuple(response.boundaries),
            inexact_resume=response.inexact_resume,
        )


@dataclass(frozen=True, slots=True)
class ListedSession:
    """What a list says of a session; its `info` says more.

    Attributes:
        id: as a client's `session` takes it, to go on with it.
        label: that it was created with.
        model: what serves it.
        state: where it stands.
        history_length: tokens of the session so far.
        kv_live_bytes: bytes of KV that the verifier really holds for the session now.
        reserved_bytes: its whole lane, slack included; 0 while it is parked.
        idle_seconds: since its last operation; 0 while one runs.
    """

    id: str
    label: str
    model: str
    state: SessionState
    history_length: int
    kv_live_bytes: int
    reserved_bytes: int
    idle_seconds: float

    @classmethod
    def from_wire(cls, session: runtime_pb2.Session) -> Self:
        return cls(
            id=session.session_id,
            label=session.client_label,
            model=session.model,
            state=SessionState.from_wire(session.state),
            history_length=session.history_length,
            kv_live_bytes=session.kv_live_bytes,
            reserved_bytes=session.reserved_bytes,
            idle_seconds=session.idle_seconds,
        )


@dataclass(frozen=True, slots=True)
class ParkResult:
    """After parking.

    Attributes:
        history_length: tokens of the session, all of which are kept.
        freed_bytes: of the lane that another session may have now; 0 where it had none any more.
    """

    history_length: int
    freed_bytes: int

    @classmethod
    def from_wire(cls, response: runtime_pb2.ParkSessionResponse) -> Self:
        return cls(history_length=response.history_length, freed_bytes=response.freed_bytes)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that the runtime serves.

    Attributes:
        name: as `create_session(model=...)` takes it.
        num_lane_tokens: what its largest lane keeps: sinks and window of a session fit into this.
        vocab_size: token ids are below it.
        is_default: it serves sessions that name no model.
        tokenizer_digest: SHA-256 in hex of its tokenizer.json in canonical form, see `Model` in
            kakeya/v1/runtime.proto; "" where its workers bring none or disagree, and from an older router.
    """

    name: str
    num_lane_tokens: int
    vocab_size: int
    is_default: bool
    tokenizer_digest: str

    @classmethod
    def from_wire(cls, model: runtime_pb2.Model) -> Self:
        return cls(
            name=model.name,
            num_lane_tokens=model.lane_token_count,
            vocab_size=model.vocab_size,
            is_default=model.is_default,
            tokenizer_digest=model.tokenizer_digest,
        )
