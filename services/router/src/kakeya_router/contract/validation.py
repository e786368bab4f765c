"""What a request must be like before it touches anything."""

import math
from collections.abc import Iterable, Sequence

from kakeya_router.store.keys import pool_of
from kakeya_shared.contract import labels
from kakeya_shared.contract.generation_limits import (
    MAX_LOGIT_BIASES,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_STOP_SEQUENCE_TOKENS,
    MAX_STOP_SEQUENCES,
)
from kakeya_shared.errors.tree import HistoryLengthMismatch, InvalidField, TokenOutOfVocabulary
from kakeya_stubs.v1 import runtime_pb2

# A client's own id for a request, such as a UUID.
MAX_REQUEST_ID_BYTES = 128
# SHA-256 in hex takes half of it.
MAX_FINGERPRINT_BYTES = 128
# Models have one to a handful; whoever stops at many more still has a record of a few KB.
MAX_EOS_TOKEN_IDS = 1024
# A pool of 63 letters, a dot and 22 of base64url are 86.
MAX_SESSION_ID_LENGTH = 128
# A conversation that nobody has touched for a year will not be gone on with.
MAX_TTL_SECONDS = 365 * 86_400

# Control characters and the two separators that end a line: what could forge a line of a log or of a list. Format
# characters, such as those that turn the direction of writing: what could disguise one.


def invalid(field: str, why: str) -> InvalidField:
    return InvalidField(f"{field}: {why}", metadata={"field": field})


def check_text(field: str, text: str, max_bytes: int) -> None:
    """Raises InvalidField: longer than that in UTF-8, or not one line of printable text."""
    if flaw := labels.flaw(text, max_bytes):
        raise invalid(field, flaw)


def is_session_id(text: str) -> bool:
    """Whether some router may have issued this id."""
    return len(text) <= MAX_SESSION_ID_LENGTH and pool_of(text) is not None


def check_create(request: runtime_pb2.CreateSessionRequest) -> None:
    """Checks what needs neither worker nor settings; raises InvalidField."""
    check_text("request_id", request.request_id, MAX_REQUEST_ID_BYTES)
    check_text("model", request.model, labels.MAX_MODEL_BYTES)
    check_text("fingerprint", request.fingerprint, MAX_FINGERPRINT_BYTES)
    if len(request.eos_token_ids) > MAX_EOS_TOKEN_IDS:
        raise invalid("eos_token_ids", f"{len(request.eos_token_ids)} of them; at most {MAX_EOS_TOKEN_IDS}")
    if request.HasField("window") and request.window < 1:
        raise invalid("window", "must be at least 1")
    if request.on_overflow not in runtime_pb2.OverflowPolicy.values():
        raise invalid("on_overflow", f"there is no policy {request.on_overflow}")
    if request.HasField("ttl_seconds") and not 1 <= request.ttl_seconds <= MAX_TTL_SECONDS:
        raise invalid("ttl_seconds", f"must be at least 1 and at most {MAX_TTL_SECONDS}")


def check_close(request: runtime_pb2.CloseSessionRequest) -> None:
    """Checks one that names a request; raises InvalidField."""
    check_text("request_id", request.request_id, MAX_REQUEST_ID_BYTES)
    if request.session_id:
        raise invalid("request_id", "a session is closed by its session_id or by this, not by both")


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
    _check_resumption(request)


def _check_resumption(request: runtime_pb2.GenerateRequest) -> None:
    check_text("op_id", request.op_id, MAX_REQUEST_ID_BYTES)
    if request.resume_token_ids and not request.op_id:
        raise invalid("resume_token_ids", "of no operation; there is no op_id")
    if len(request.resume_token_ids) > request.max_tokens:
        raise invalid("resume_token_ids", "are more than max_tokens")


def _check_stop_sequences(sequences: Sequence[runtime_pb2.TokenSequence]) -> None:
    if len(sequences) > MAX_STOP_SEQUENCES:
        raise invalid("stop_token_sequences", f"{len(sequences)} of them; at most {MAX_STOP_SEQUENCES}")
    if not all(1 <= len(sequence.token_ids) <= MAX_STOP_SEQUENCE_TOKENS for sequence in sequences):
        raise invalid("stop_token_sequences", f"each must have 1 to {MAX_STOP_SEQUENCE_TOKENS} tokens")


def check_generate_vocabulary(request: runtime_pb2.GenerateRequest, vocab_size: int) -> None:
    """Raises TokenOutOfVocabulary."""
    check_vocabulary("logit_bias", request.logit_bias, vocab_size)
    check_vocabulary("resume_token_ids", request.resume_token_ids, vocab_size)
    for sequence in request.stop_token_sequences:
        check_vocabulary("stop_token_sequences", sequence.token_ids, vocab_size)


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
