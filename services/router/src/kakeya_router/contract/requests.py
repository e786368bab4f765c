"""The requests of `kakeya.v1`, checked once and frozen: behind the services nothing sees their messages."""

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from kakeya_router.contract.validation import (
    MAX_FINGERPRINT_BYTES,
    RequestLimits,
    check_text,
    check_vocabulary,
    invalid,
)
from kakeya_router.store.session_record import Overflow
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import pack
from kakeya_shared.contract import labels
from kakeya_shared.contract.generation_limits import (
    MAX_LOGIT_BIASES,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_STOP_SEQUENCE_TOKENS,
    MAX_STOP_SEQUENCES,
)
from kakeya_stubs.v1 import runtime_pb2 as pb

# A client's own id for a request, such as a UUID.
MAX_REQUEST_ID_BYTES = 128
# Models have one to a handful; whoever stops at many more still has a record of a few KB.
MAX_EOS_TOKEN_IDS = 1024
# A conversation that nobody has touched for a year will not be gone on with.
MAX_TTL_SECONDS = 365 * 86_400

_OVERFLOW = {
    pb.OVERFLOW_POLICY_UNSPECIFIED: None,
    pb.OVERFLOW_POLICY_EVICT: Overflow.EVICT,
    pb.OVERFLOW_POLICY_REFUSE: Overflow.REFUSE,
}


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a session branches off from another; no boundary: at that one's end."""

    session_id: str
    boundary: int | None = None


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A session that is asked for. None, or empty: left to the router, the worker or the source.

    Attributes:
        request_id: equal requests with one id are answered with one session.
        digest: equal for equal requests.
    """

    model: str = ""
    fingerprint: str = ""
    label: str = ""
    request_id: str = ""
    eos_token_ids: tuple[int, ...] = ()
    sink: int | None = None
    window: int | None = None
    pin: int | None = None
    on_overflow: Overflow | None = None
    ttl_seconds: int | None = None
    fork_from: ForkPoint | None = None
    inexact_resume: bool = False
    ephemeral: bool = False
    digest: str = ""


def create(message: pb.CreateSessionRequest, limits: RequestLimits) -> CreateRequest:
    """Checks what needs neither worker nor source; raises InvalidField."""
    limits.check_label(message.client_label)
    check_text("request_id", message.request_id, MAX_REQUEST_ID_BYTES)
    check_text("model", message.model, labels.MAX_MODEL_BYTES)
    check_text("fingerprint", message.fingerprint, MAX_FINGERPRINT_BYTES)
    if len(message.eos_token_ids) > MAX_EOS_TOKEN_IDS:
        raise invalid("eos_token_ids", f"{len(message.eos_token_ids)} of them; at most {MAX_EOS_TOKEN_IDS}")
    if message.HasField("window") and message.window < 1:
        raise invalid("window", "must be at least 1")
    if message.on_overflow not in _OVERFLOW:
        raise invalid("on_overflow", f"there is no policy {message.on_overflow}")
    if message.HasField("ttl_seconds") and not 1 <= message.ttl_seconds <= MAX_TTL_SECONDS:
        raise invalid("ttl_seconds", f"must be at least 1 and at most {MAX_TTL_SECONDS}")
    source = message.fork_from
    return CreateRequest(
        model=message.model,
        fingerprint=message.fingerprint,
        label=message.client_label,
        request_id=message.request_id,
        eos_token_ids=tuple(message.eos_token_ids),
        sink=message.sink if message.HasField("sink") else None,
        window=message.window if message.HasField("window") else None,
        pin=message.pin if message.HasField("pin") else None,
        on_overflow=_OVERFLOW[message.on_overflow],
        ttl_seconds=message.ttl_seconds if message.HasField("ttl_seconds") else None,
        fork_from=ForkPoint(source.session_id, source.boundary if source.HasField("boundary") else None)
        if message.HasField("fork_from")
        else None,
        inexact_resume=message.inexact_resume,
        ephemeral=message.ephemeral,
        digest=hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest(),
    )


def fork(message: pb.ForkSessionRequest, limits: RequestLimits) -> CreateRequest:
    """As a CreateSession that branches off; raises as `create`."""
    as_create = pb.CreateSessionRequest(
        fork_from=message.source,
        client_label=message.client_label,
        request_id=message.request_id,
        eos_token_ids=message.eos_token_ids,
        ttl_seconds=message.ttl_seconds if message.HasField("ttl_seconds") else None,
        inexact_resume=message.inexact_resume,
        ephemeral=message.ephemeral,
    )
    return create(as_create, limits)


def given_up(message: pb.CloseSessionRequest) -> str:
    """The request id that a CloseSession names; empty: it names a session. Raises InvalidField."""
    check_text("request_id", message.request_id, MAX_REQUEST_ID_BYTES)
    if message.request_id and message.session_id:
        raise invalid("request_id", "a session is closed by its session_id or by this, not by both")
    return message.request_id


@dataclass(frozen=True, slots=True)
class AppendRequest:
    session_id: str
    token_ids: tuple[int, ...]
    expected_history_length: int | None

    @property
    def digest(self) -> str:
        """Tells a repeated append from another one."""
        return hashlib.sha256(pack(self.token_ids)).hexdigest()

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises TokenOutOfVocabulary."""
        check_vocabulary("token_ids", self.token_ids, vocab_size)


def append(message: pb.AppendTokensRequest, limits: RequestLimits) -> AppendRequest:
    """Raises AppendTooLong."""
    limits.check_append(len(message.token_ids))
    return AppendRequest(message.session_id, tuple(message.token_ids), _expected(message))


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


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """An answer that is asked for.

    Attributes:
        logprobs: for how many of the likeliest ids; None: none are asked for.
        op_id: of the operation that is gone on with; empty: a new one begins.
        resume_token_ids: what the client has of it.
    """

    session_id: str
    max_tokens: int
    sampling: Sampling
    stop_token_sequences: tuple[tuple[int, ...], ...]
    logprobs: int | None
    expected_history_length: int | None
    op_id: str
    resume_token_ids: tuple[int, ...]

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises TokenOutOfVocabulary."""
        check_vocabulary("logit_bias", self.sampling.logit_bias, vocab_size)
        check_vocabulary("resume_token_ids", self.resume_token_ids, vocab_size)
        for sequence in self.stop_token_sequences:
            check_vocabulary("stop_token_sequences", sequence, vocab_size)

    def seeded(self, seed: int) -> Self:
        return replace(self, sampling=replace(self.sampling, seed=seed))

    @property
    def intent(self) -> Intent:
        """All that a router needs to go on with the operation from any token."""
        sampling = {name: getattr(self.sampling, name) for name in Sampling.__dataclass_fields__}
        parameters = {
            "max_tokens": self.max_tokens,
            **sampling,
            "logprobs": self.logprobs,
            "stop_token_sequences": self.stop_token_sequences,
        }
        return Intent(
            "generate", parameters, seed=self.sampling.seed, op_id=self.op_id, may_begin=not self.resume_token_ids
        )


def generate(message: pb.GenerateRequest, limits: RequestLimits) -> GenerateRequest:
    """Checks what needs no session, and draws a seed where none is given; raises InvalidField."""
    if message.max_tokens < 1:
        raise invalid("max_tokens", "must be at least 1")
    if not (math.isfinite(message.temperature) and message.temperature >= 0):
        raise invalid("temperature", "must be finite and not negative")
    if message.HasField("top_p") and not 0 < message.top_p <= 1:
        raise invalid("top_p", "must be above 0 and at most 1")
    if not 0 <= message.min_p <= 1:
        raise invalid("min_p", "must be at least 0 and at most 1")
    for name in ("presence_penalty", "frequency_penalty"):
        if not -MAX_PENALTY <= getattr(message, name) <= MAX_PENALTY:
            raise invalid(name, f"must be at least -{MAX_PENALTY:g} and at most {MAX_PENALTY:g}")
    if len(message.logit_bias) > MAX_LOGIT_BIASES:
        raise invalid("logit_bias", f"{len(message.logit_bias)} entries; at most {MAX_LOGIT_BIASES}")
    if not all(map(math.isfinite, message.logit_bias.values())):
        raise invalid("logit_bias", "must be finite")
    if message.logprobs > MAX_LOGPROBS:
        raise invalid("logprobs", f"must be at most {MAX_LOGPROBS}")
    _check_stop_sequences(message.stop_token_sequences)
    _check_resumption(message)
    limits.check_generate(message.max_tokens)
    return GenerateRequest(
        message.session_id,
        message.max_tokens,
        _sampling(message),
        tuple(tuple(sequence.token_ids) for sequence in message.stop_token_sequences),
        message.logprobs if message.HasField("logprobs") else None,
        _expected(message),
        message.op_id,
        tuple(message.resume_token_ids),
    )


def _check_stop_sequences(sequences: Sequence[pb.TokenSequence]) -> None:
    if len(sequences) > MAX_STOP_SEQUENCES:
        raise invalid("stop_token_sequences", f"{len(sequences)} of them; at most {MAX_STOP_SEQUENCES}")
    if not all(1 <= len(sequence.token_ids) <= MAX_STOP_SEQUENCE_TOKENS for sequence in sequences):
        raise invalid("stop_token_sequences", f"each must have 1 to {MAX_STOP_SEQUENCE_TOKENS} tokens")


def _check_resumption(message: pb.GenerateRequest) -> None:
    check_text("op_id", message.op_id, MAX_REQUEST_ID_BYTES)
    if message.resume_token_ids and not message.op_id:
        raise invalid("resume_token_ids", "of no operation; there is no op_id")
    if len(message.resume_token_ids) > message.max_tokens:
        raise invalid("resume_token_ids", "are more than max_tokens")


def _sampling(message: pb.GenerateRequest) -> Sampling:
    return Sampling(
        seed=message.seed if message.HasField("seed") else secrets.randbits(63),
        temperature=message.temperature,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
        top_k=message.top_k,
        min_p=message.min_p,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=dict(message.logit_bias),
    )


def _expected(message: pb.AppendTokensRequest | pb.GenerateRequest) -> int | None:
    return message.expected_history_length if message.HasField("expected_history_length") else None
