"""Names and labels of the contracts: one line of printable text."""

import unicodedata

MAX_MODEL_BYTES = 256
"""Of a model's name: a path or a repository's name."""

_UNPRINTABLE = frozenset({"Cc", "Cf", "Zl", "Zp"})


def flaw(text: str, max_bytes: int) -> str:
    """Why a text cannot be such a label, "" where it can: longer than that in UTF-8, or not one line that prints."""
    if text.isascii() and text.isprintable() and len(text) <= max_bytes:  # nearly all: at a tenth of the time
        return ""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return "is no text (UTF-8)"
    if len(text.encode()) > max_bytes:
        return f"longer than {max_bytes} bytes"
    if not _UNPRINTABLE.isdisjoint(map(unicodedata.category, text)):
        return "has control or format characters, or line breaks"
    return ""
