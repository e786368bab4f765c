"""What appends, rewinds and generations answer, and what the model can see of a history then."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from kakeya_stubs.v1 import runtime_pb2


def ranges(retained: Iterable[runtime_pb2.TokenRange]) -> tuple[range, ...]:
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
        if not response.HasField("detail"):
            return cls(token_id=response.token_id, logprob=None, top_logprobs={})
        return cls.of(response.token_id, response.detail)

    @classmethod
    def of(cls, token_id: int, detail: runtime_pb2.TokenDetail) -> Self:
        """What the runtime says of a token."""
        top_logprobs = {top.token_id: top.logprob for top in detail.top_logprobs}
        return cls(token_id=token_id, logprob=detail.logprob, top_logprobs=top_logprobs)


@dataclass(frozen=True, slots=True)
class AppendResult(Sight):
    """After an append.

    Attributes:
        history_length: tokens of the session so far.
        kv_live_bytes: bytes of KV that the verifier really holds for the session now.
        prefill_seconds: time that the forward passes over the new tokens took.
        num_evicted_tokens: tokens that left the window because of this append.
        retained: what is kept of the history, as indices into it, ascending.
        details: where `logprobs` asked for them, of each token; the first of a history has none, since nothing precedes
            it. Empty where the connection broke and the tokens were there already: they are computed once.
    """

    history_length: int
    kv_live_bytes: int
    prefill_seconds: float
    num_evicted_tokens: int
    retained: tuple[range, ...]
    details: tuple[TokenDetail, ...] = ()

    @classmethod
    def from_wire(cls, response: runtime_pb2.AppendTokensResponse, token_ids: Sequence[int] = ()) -> Self:
        """The answer to an append of these tokens."""
        scored = token_ids[len(token_ids) - len(response.logprobs) :]
        return cls(
            history_length=response.history_length,
            kv_live_bytes=response.kv_live_bytes,
            prefill_seconds=response.prefill_duration_seconds,
            num_evicted_tokens=response.evicted_token_count,
            retained=ranges(response.retained),
            details=tuple(map(TokenDetail.of, scored, response.logprobs)),
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
            retained=ranges(response.retained),
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
        return cls(num_dropped_tokens=truncated.dropped_token_count, retained=ranges(truncated.retained))


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
        num_drafted_tokens: drafts of the session's proposer that were checked.
        num_accepted_tokens: those that were right: tokens of the generation without a step of their own.
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
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0

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
            retained=ranges(done.retained),
            num_drafted_tokens=done.drafted_token_count,
            num_accepted_tokens=done.accepted_token_count,
        )
