"""What a request must be like before it touches anything."""

import math
from collections.abc import Iterable

from kakeya_shared.errors import AppendTooLong, HistoryLengthMismatch, InvalidField, TokenOutOfVocabulary
from kakeya_stubs.v1 import runtime_pb2

_MAX_LABEL_BYTES = 256


def invalid(field: str, why: str) -> InvalidField:
    return InvalidField(f"{field}: {why}", metadata={"field": field})


def check_create(request: runtime_pb2.CreateSessionRequest) -> None:
    """Checks what needs no worker's geometry; raises InvalidField."""
    if len(request.client_label.encode()) > _MAX_LABEL_BYTES:
        raise invalid("client_label", f"longer than {_MAX_LABEL_BYTES} bytes")
    if request.HasField("window") and request.window < 1:
        raise invalid("window", "must be at least 1")
    if request.HasField("ttl_seconds") and request.ttl_seconds < 1:
        raise invalid("ttl_seconds", "must be at least 1")


def check_generate(request: runtime_pb2.GenerateRequest) -> None:
    """Raises InvalidField."""
    if request.max_tokens < 1:
        raise invalid("max_tokens", "must be at least 1")
    if not (math.isfinite(request.temperature) and request.temperature >= 0):
        raise invalid("temperature", "must be finite and not negative")
    if request.HasField("top_p") and not 0 < request.top_p <= 1:
        raise invalid("top_p", "must be above 0 and at most 1")


def check_append_length(num_tokens: int, max_append_tokens: int) -> None:
    if num_tokens > max_append_tokens:
        raise AppendTooLong(
            f"{num_tokens} tokens in one append; at most {max_append_tokens}",
            metadata={"max_append_tokens": str(max_append_tokens)},
        )


def check_vocabulary(token_ids: Iterable[int], vocab_size: int) -> None:
    largest = max(token_ids, default=0)
    if largest >= vocab_size:
        raise TokenOutOfVocabulary(
            f"token id {largest} is outside the vocabulary of {vocab_size}", metadata={"vocab_size": str(vocab_size)}
        )


def check_history_length(expected: int, actual: int) -> None:
    if expected != actual:
        raise HistoryLengthMismatch(
            f"the history has {actual} tokens, not {expected}", metadata={"history_length": str(actual)}
        )
