"""What several requests are checked for, before they touch anything."""

from collections.abc import Iterable

from kakeya_router.store.keys import pool_of
from kakeya_shared.contract import labels
from kakeya_shared.errors.tree import HistoryLengthMismatch, InvalidField, TokenOutOfVocabulary

# SHA-256 in hex takes half of it.
MAX_FINGERPRINT_BYTES = 128
# A pool of 63 letters, a dot and 22 of base64url are 86.
MAX_SESSION_ID_LENGTH = 128


def invalid(field: str, why: str) -> InvalidField:
    return InvalidField(f"{field}: {why}", metadata={"field": field})


def check_text(field: str, text: str, max_bytes: int) -> None:
    """Raises InvalidField: longer than that in UTF-8, or not one line of printable text."""
    if flaw := labels.flaw(text, max_bytes):
        raise invalid(field, flaw)


def is_session_id(text: str) -> bool:
    """Whether some router may have issued this id."""
    return len(text) <= MAX_SESSION_ID_LENGTH and pool_of(text) is not None


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
