"""Generate: what is asked for, checked once and frozen, and what is answered, from the worker on to the client."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self, assert_never

from kakeya_router.contract import lanes
from kakeya_router.contract.grammars import Grammar
from kakeya_router.contract.reasonings import Reasoning
from kakeya_router.contract.token_detail import TokenDetail
from kakeya_router.contract.validation import RequestLimits, check_vocabulary
from kakeya_router.store.session_record import Features, LaneState, SessionId, SessionRecord
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api

_STOP_REASONS = {
    worker_api.FINISH_REASON_MAX_TOKENS: api.STOP_REASON_MAX_TOKENS,
    worker_api.FINISH_REASON_EOS: api.STOP_REASON_EOS,
    worker_api.FINISH_REASON_STOP_SEQUENCE: api.STOP_REASON_STOP_SEQUENCE,
    worker_api.FINISH_REASON_TRUNCATED: api.STOP_REASON_TRUNCATED,
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; see `kakeya.v1.GenerateRequest`."""

    seed: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    repetition_penalty: float = 0.0  # as 1: none

    @property
    def parameters(self) -> dict[str, Any]:
        """By name. dataclasses.asdict would copy what is in them, which takes ten times as long."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """An answer that is asked for.

    Attributes:
        logprobs: for how many of the likeliest ids; None: none are asked for.
        op_id: of the operation that is gone on with; empty: a new one begins.
        resume_token_ids: what the client has of it.
        min_tokens, ignore_eos, grammar, reasoning: see `kakeya.v1.GenerateRequest`.
        features: that its worker has to name.
    """

    session_id: SessionId
    max_tokens: int
    sampling: Sampling
    stop_token_sequences: tuple[tuple[int, ...], ...] = ()
    logprobs: int | None = None
    expected_history_length: int | None = None
    op_id: str = ""
    resume_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    grammar: Grammar | None = None
    reasoning: Reasoning | None = None
    features: Features = frozenset()

    @classmethod
    def of(cls, message: api.GenerateRequest, limits: RequestLimits) -> Self:
        """Checks what needs no session, and draws a seed where none is given; raises InvalidField."""
        features = limits.check_generate(message)
        return cls(
            SessionId(message.session_id),
            message.max_tokens,
            _sampling(message),
            tuple(tuple(sequence.token_ids) for sequence in message.stop_token_sequences),
            message.logprobs if message.HasField("logprobs") else None,
            message.expected_history_length if message.HasField("expected_history_length") else None,
            message.op_id,
            tuple(message.resume_token_ids),
            message.min_tokens,
            message.ignore_eos,
            Grammar.of(message) if message.HasField("grammar") else None,
            Reasoning.of(message.reasoning) if message.HasField("reasoning") else None,
            features=features,
        )

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises TokenOutOfVocabulary."""
        check_vocabulary("logit_bias", self.sampling.logit_bias, vocab_size)
        check_vocabulary("resume_token_ids", self.resume_token_ids, vocab_size)
        for sequence in self.stop_token_sequences:
            check_vocabulary("stop_token_sequences", sequence, vocab_size)
        if self.reasoning is not None:
            self.reasoning.check_vocabulary(vocab_size)

    @property
    def intent(self) -> Intent:
        """All that a router needs to go on with the operation from any token."""
        parameters = {
            "max_tokens": self.max_tokens,
            **self.sampling.parameters,
            "logprobs": self.logprobs,
            "stop_token_sequences": self.stop_token_sequences,
            "min_tokens": self.min_tokens,
            "ignore_eos": self.ignore_eos,
            "grammar": self.grammar and asdict(self.grammar),
            "reasoning": self.reasoning and asdict(self.reasoning),
        }
        return Intent(
            "generate",
            parameters,
            seed=self.sampling.seed,
            op_id=self.op_id,
            may_begin=not self.resume_token_ids,
            features=self.features,
        )

    def message(
        self, record: SessionRecord, *, max_tokens: int, produced: Sequence[int], closes: bool
    ) -> worker_api.GenerateRequest:
        """For the worker.

        Args:
            max_tokens: as far as the history has room for them.
            produced: the operation's tokens so far.
            closes: the session ends with the answer.
        """
        return worker_api.GenerateRequest(
            sampling=worker_api.Sampling(**self.sampling.parameters),
            session_id=record.session_id,
            epoch=record.epoch,
            history_length=record.history_length,
            max_tokens=max_tokens,
            eos_token_ids=record.eos_token_ids,
            stop_token_sequences=[worker_api.TokenSequence(token_ids=each) for each in self.stop_token_sequences],
            logprobs=self.logprobs,
            previous_token_ids=produced,
            operation_number=record.operation_number,
            history_digest=record.digest_at(record.history_length),
            acknowledges=True,
            min_tokens=min(self.min_tokens, max_tokens),
            ignore_eos=self.ignore_eos,
            grammar=None if self.grammar is None else self.grammar.message,
            reasoning=None if self.reasoning is None else self.reasoning.message,
            closes_session=closes,
        )


def _sampling(message: api.GenerateRequest) -> Sampling:
    return Sampling(
        seed=message.seed if message.HasField("seed") else secrets.randbits(63),
        temperature=message.temperature,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
        top_k=message.top_k,
        min_p=message.min_p,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=dict(message.logit_bias),
        repetition_penalty=message.repetition_penalty if message.repetition_penalty != 1 else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Begun:
    """The session is held; first of all events."""

    op_id: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """What the session had forgotten at the start; `retained` as in `LaneState`."""

    dropped_token_count: int
    retained: str


@dataclass(frozen=True, slots=True)
class Token:
    """One token; no detail: none was asked for, or it is not known any more."""

    token_id: int
    detail: TokenDetail | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The worker's last word.

    Attributes:
        session_closed: the worker has freed the lane.
    """

    stop_reason: api.StopReason.ValueType
    lane: LaneState
    generated_token_count: int
    prefill_duration_seconds: float
    total_duration_seconds: float
    evicted_token_count: int
    drafted_token_count: int = 0
    accepted_token_count: int = 0
    session_closed: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """Last of all events; the session is free.

    Attributes:
        is_capped: the worker was asked for fewer tokens than the client asks for.
    """

    done: Done
    op_id: str
    seed: int
    is_capped: bool


Event = Begun | Truncated | Token | Ended


def from_worker(message: worker_api.GenerateResponse) -> Token | Done:
    if message.HasField("done"):
        return done_from_worker(message.done)
    return Token(message.token_id, TokenDetail.of(message.detail) if message.HasField("detail") else None)


def done_from_worker(done: worker_api.GenerateDone) -> Done:
    return Done(
        _STOP_REASONS.get(done.finish_reason, api.STOP_REASON_UNSPECIFIED),
        lanes.from_worker(done.lane),
        done.generated_token_count,
        done.prefill_duration_seconds,
        done.total_duration_seconds,
        done.evicted_token_count,
        done.drafted_token_count,
        done.accepted_token_count,
        done.session_closed,
    )


def to_client(event: Truncated | Token | Ended) -> api.GenerateResponse:
    match event:
        case Token():
            detail = None if event.detail is None else event.detail.message()
            return api.GenerateResponse(token_id=event.token_id, detail=detail)
        case Truncated():
            truncated = api.HistoryTruncated(
                dropped_token_count=event.dropped_token_count, retained=lanes.retained(event.retained)
            )
            return api.GenerateResponse(truncated=truncated)
        case Ended():
            return api.GenerateResponse(done=_done(event))
        case never:
            assert_never(never)


def _done(ended: Ended) -> api.GenerateDone:
    done = ended.done
    is_cut = ended.is_capped and done.stop_reason == api.STOP_REASON_MAX_TOKENS
    return api.GenerateDone(
        stop_reason=api.STOP_REASON_TRUNCATED if is_cut else done.stop_reason,
        generated_token_count=done.generated_token_count,
        prefill_duration_seconds=done.prefill_duration_seconds,
        total_duration_seconds=done.total_duration_seconds,
        seed=ended.seed,
        op_id=ended.op_id,
        evicted_token_count=done.evicted_token_count,
        history_length=done.lane.history_length,
        kv_live_bytes=done.lane.kv_live_bytes,
        retained=lanes.retained(done.lane.retained),
        drafted_token_count=done.drafted_token_count,
        accepted_token_count=done.accepted_token_count,
    )
