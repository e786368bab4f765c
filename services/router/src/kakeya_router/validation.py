"""What a request must be like before it touches anything."""

import math
from collections.abc import Iterable, Sequence

from kakeya_shared.errors import AppendTooLong, HistoryLengthMismatch, InvalidField, TokenOutOfVocabulary
from kakeya_shared.generation_limits import (
    MAX_LOGIT_BIASES,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_STOP_SEQUENCE_TOKENS,
    MAX_STOP_SEQUENCES,
)
from kakeya_stubs.v1 import runtime_pb2

# A line of an operator's list.
_MAX_LABEL_BYTES = 256


def invalid(field: str, why: str) -> InvalidField:
    return InvalidField(f"{field}: {why}", metadata={"field": field})


def check_create(request: runtime_pb2.CreateSessionRequest) -> None:
    """Checks what needs no worker; raises InvalidField."""
    if len(request.client_label.encode()) > _MAX_LABEL_BYTES:
        raise invalid("client_label", f"longer than {_MAX_LABEL_BYTES} bytes")
    if request.HasField("window") and request.window < 1:
        raise invalid("window", "must be at least 1")
    if request.on_overflow not in runtime_pb2.OverflowPolicy.values():
        raise invalid("on_overflow", f"there is no policy {request.on_overflow}")
    if request.HasField("ttl_seconds") and request.ttl_seconds < 1:
        raise invalid("ttl_seconds", "must be at least 1")


def check_generate(request: runtime_pb2.GenerateRequest) -> None:
    """Checks what needs no session; raises InvalidField."""
    if request.max_tokens < 1:
        raise invalid("max_tokens", "must be at least 1")
    if not (math.isfinite(request.temperature) and request.temperature >= 0):
        raise invalid("temperature", "must be finite and not negative")
    if request.HasField("top_p") and not 0 < request.top_p <= 1:
        raise invalid("top_p", "must be above 0 and at most 1")
    if not 0 <= request.min_p <= 1:
        raise invalid("min_p", "must be at least 0 and at most 1")
    for field in ("presence_penalty", "frequency_penalty"):
        if not -MAX_PENALTY <= getattr(request, field) <= MAX_PENALTY:
            raise invalid(field, f"must be at least -{MAX_PENALTY:g} and at most {MAX_PENALTY:g}")
    if len(request.logit_bias) > MAX_LOGIT_BIASES:
        raise invalid("logit_bias", f"{len(request.logit_bias)} entries; at most {MAX_LOGIT_BIASES}")
    if not all(map(math.isfinite, request.logit_bias.values())):
        raise invalid("logit_bias", "must be finite")
    if request.logprobs > MAX_LOGPROBS:
        raise invalid("logprobs", f"must be at most {MAX_LOGPROBS}")
    _check_stop_sequences(request.stop_token_sequences)


def _check_stop_sequences(sequences: Sequence[runtime_pb2.TokenSequence]) -> None:
    if len(sequences) > MAX_STOP_SEQUENCES:
        raise invalid("stop_token_sequences", f"{len(sequences)} of them; at most {MAX_STOP_SEQUENCES}")
    if not all(1 <= len(sequence.token_ids) <= MAX_STOP_SEQUENCE_TOKENS for sequence in sequences):
        raise invalid("stop_token_sequences", f"each must have 1 to {MAX_STOP_SEQUENCE_TOKENS} tokens")


def check_generate_vocabulary(request: runtime_pb2.GenerateRequest, vocab_size: int) -> None:
    """Raises TokenOutOfVocabulary."""
    check_vocabulary("logit_bias", request.logit_bias, vocab_size)
    for sequence in request.stop_token_sequences:
        check_vocabulary("stop_token_sequences", sequence.token_ids, vocab_size)


def check_append_length(num_tokens: int, max_append_tokens: int) -> None:
    if num_tokens > max_append_tokens:
        raise AppendTooLong(
            f"{num_tokens} tokens in one append; at most {max_append_tokens}",
            metadata={"max_append_tokens": str(max_append_tokens)},
        )


def check_vocabulary(field: str, token_ids: Iterable[int], vocab_size: int) -> None:
    largest = max(token_ids, default=0)
    if largest >= vocab_size:
        raise TokenOutOfVocabulary(
            f"{field}: token id {largest} is outside the vocabulary of {vocab_size}",
            metadata={"field": field, "vocab_size": str(vocab_size)},
        )


def check_history_length(expected: int, actual: int) -> None:
    if expected != actual:
        raise HistoryLengthMismatch(
            f"the history has {actual} tokens, not {expected}", metadata={"history_length": str(actual)}
        )
