"""What a Generate may not ask for, whatever session it is for."""

import math
from collections.abc import Sequence

from kakeya_router.contract.creates import MAX_REQUEST_ID_BYTES
from kakeya_router.contract.validation import check_text, invalid
from kakeya_shared.contract.generation_limits import (
    MAX_LOGIT_BIASES,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_STOP_SEQUENCE_TOKENS,
    MAX_STOP_SEQUENCES,
)
from kakeya_stubs.v1 import runtime_pb2 as api


def check(message: api.GenerateRequest) -> None:
    """Raises InvalidField."""
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
    if message.HasField("repetition_penalty") and not 0 < message.repetition_penalty <= MAX_REPETITION_PENALTY:
        raise invalid("repetition_penalty", f"must be above 0 and at most {MAX_REPETITION_PENALTY:g}")
    if len(message.logit_bias) > MAX_LOGIT_BIASES:
        raise invalid("logit_bias", f"{len(message.logit_bias)} entries; at most {MAX_LOGIT_BIASES}")
    if not all(map(math.isfinite, message.logit_bias.values())):
        raise invalid("logit_bias", "must be finite")
    if message.min_tokens > message.max_tokens:
        raise invalid("min_tokens", "must be at most max_tokens")
    if message.logprobs > MAX_LOGPROBS:
        raise invalid("logprobs", f"must be at most {MAX_LOGPROBS}")
    _check_stop_sequences(message.stop_token_sequences)
    _check_resumption(message)


def _check_stop_sequences(sequences: Sequence[api.TokenSequence]) -> None:
    if len(sequences) > MAX_STOP_SEQUENCES:
        raise invalid("stop_token_sequences", f"{len(sequences)} of them; at most {MAX_STOP_SEQUENCES}")
    if not all(1 <= len(sequence.token_ids) <= MAX_STOP_SEQUENCE_TOKENS for sequence in sequences):
        raise invalid("stop_token_sequences", f"each must have 1 to {MAX_STOP_SEQUENCE_TOKENS} tokens")


def _check_resumption(message: api.GenerateRequest) -> None:
    check_text("op_id", message.op_id, MAX_REQUEST_ID_BYTES)
    if message.resume_token_ids and not message.op_id:
        raise invalid("resume_token_ids", "of no operation; there is no op_id")
    if len(message.resume_token_ids) > message.max_tokens:
        raise invalid("resume_token_ids", "are more than max_tokens")
