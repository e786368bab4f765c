"""What several requests are checked for before they touch anything, and what the operator allows of one."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kakeya_router.store.session_record import Features
from kakeya_shared.contract import features, labels
from kakeya_shared.contract.generation_limits import (
    MAX_LOGIT_BIASES,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_STOP_SEQUENCE_TOKENS,
    MAX_STOP_SEQUENCES,
)
from kakeya_shared.errors.tree import (
    AppendTooLong,
    HistoryFull,
    HistoryLengthMismatch,
    InvalidField,
    TokenOutOfVocabulary,
)
from kakeya_stubs.v1 import runtime_pb2 as api

# Redis counts in 64-bit integers, and its scripts in doubles, which are exact up to here.
MAX_COUNT = 1 << 53
# SHA-256 in hex takes half of it.
MAX_REQUEST_ID_BYTES = 128
MAX_FINGERPRINT_BYTES = 128
MAX_SPECULATION_BYTES = 64


def invalid(field: str, why: str) -> InvalidField:
    return InvalidField(f"{field}: {why}", metadata={"field": field})


def check_text(field: str, text: str, max_bytes: int) -> None:
    """Raises InvalidField: longer than that in UTF-8, or not one line of printable text."""
    if text and (flaw := labels.flaw(text, max_bytes)):
        raise invalid(field, flaw)


def check_texts(request: object, max_bytes: Mapping[str, int]) -> None:
    """As `check_text`, of fields by their names."""
    for field, most in max_bytes.items():
        check_text(field, getattr(request, field), most)


def check_numbers(request: object, largest: Mapping[str, int]) -> None:
    """Raises InvalidField: of fields by their names, one has a larger number."""
    for field, most in largest.items():
        if getattr(request, field) > most:
            raise invalid(field, f"must be at most {most}")


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


def append_features(message: api.AppendTokensRequest) -> Features:
    """Which features it needs of its worker: an older one would answer as if some fields were not there."""
    return frozenset({features.APPEND_LOGPROBS} if message.HasField("logprobs") else ())


def generate_features(message: api.GenerateRequest) -> Features:
    """As `append_features`. A field that changes nothing, such as a repetition penalty of 1, needs none."""
    is_penalized = message.HasField("repetition_penalty") and message.repetition_penalty != 1
    are_ends_masked = message.min_tokens > 0 or message.ignore_eos
    needed = {
        features.REPETITION_PENALTY: is_penalized,
        features.MASKED_ENDS: are_ends_masked,
        features.GRAMMAR: message.HasField("grammar"),
        features.REASONING: message.HasField("reasoning"),
    }
    return frozenset(feature for feature, is_needed in needed.items() if is_needed)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits from the settings of the same names; `max_history_tokens` 0 is no limit."""

    max_append_tokens: int
    max_generate_tokens: int
    max_history_tokens: int
    max_label_bytes: int

    def check_label(self, label: str) -> None:
        """Raises InvalidField."""
        check_text("client_label", label, self.max_label_bytes)

    def check_append(self, num_tokens: int) -> None:
        """Raises AppendTooLong."""
        if num_tokens > self.max_append_tokens:
            raise AppendTooLong(
                f"{num_tokens} tokens in one append; at most {self.max_append_tokens}",
                metadata={"max_append_tokens": str(self.max_append_tokens)},
            )

    def check_generate(self, message: api.GenerateRequest) -> Features:
        """Whatever session it is for; returns what its worker has to name. Raises InvalidField."""
        _check_generate(message)
        if message.max_tokens > self.max_generate_tokens:
            raise invalid("max_tokens", f"must be at most {self.max_generate_tokens}")
        return generate_features(message)

    def check_room(self, history_length: int, num_tokens: int) -> None:
        """Raises HistoryFull: a history of this length takes no `num_tokens` more."""
        room = self._room(history_length)
        if room is not None and num_tokens > room:
            raise HistoryFull(
                f"{num_tokens} tokens do not fit: this history may have {self.max_history_tokens}, and has "
                f"{history_length}",
                metadata={"room": str(room)},
            )

    def within_room(self, history_length: int, max_tokens: int) -> int:
        """How many of `max_tokens` may be generated. Raises HistoryFull: none."""
        self.check_room(history_length, 1)
        room = self._room(history_length)
        return max_tokens if room is None else min(max_tokens, room)

    def _room(self, history_length: int) -> int | None:
        return max(0, self.max_history_tokens - history_length) if self.max_history_tokens else None


def _check_generate(message: api.GenerateRequest) -> None:
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
