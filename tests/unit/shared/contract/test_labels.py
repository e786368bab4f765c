"""Labels are one line of printable text."""

import pytest

from kakeya_shared.contract import labels


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("Qwen3 0.6B #;%'\" \u00fc", ""),
        ("", ""),
        ("two\nlines", "has control or format characters, or line breaks"),
        ("\u202e", "has control or format characters, or line breaks"),
        ("\u00fc" * 5, "longer than 9 bytes"),
        ("a\udcff", "is no text (UTF-8)"),
    ],
)
def test_what_is_wrong_with_a_text_is_said(text: str, flaw: str) -> None:
    assert labels.flaw(text, 40 if not flaw.startswith("longer") else 9) == flaw
