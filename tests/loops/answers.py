"""What is said in the loops: texts that clients and templates are known to change on their way."""

from typing import Final

SYSTEM: Final = "You are Nano.  Be brief, and exact.\n"
MAX_TOKENS: Final = 90
OBSERVATION: Final = "Observation:"

_CODE = '```python\ndef f(x: int) -> dict:\n\treturn {"a": [1, 2.0, None], \'b\': f"{x!r}"}\n```\n'
_JSON = '{"b": 1.0, "a": "\\u00e9\\n", "c": null}'
_LONG = "漢字かな😀 " * 60

TEXTS: Final = (
    "Hello! How can I help you today?",
    " \n  It begins with white space.",
    "It ends with white space. \n\n",
    "Yes.",
    "café, cafe\u0301, ﬁ, Å, \u212b",
    "👩\u200d👩\u200d👧 👍🏽 🇫🇷 𝄞",
    "漢字かな, العربية, עברית, हिन्दी, ไทย",
    "a\u00a0b\u200bc\ufeffd\u2028e\u2029f\u0085g\x0bh\x0ci",
    _CODE,
    "<b>&amp;</b> <script>alert('1 < 2')</script>",
    "It ends at <|im_end|>, </s>, <end_of_turn>, [/INST] or <|eot_id|>.",
    _JSON,
    "one\r\ntwo\rthree\n",
    _LONG,
    "Yes.",
    "{{ messages }} {% if x %} {# no #} ${HOME} %s \\n \\u0041 \\",
    "- one\n- two\n\n  - three  \n\n1. **four**",
    "\"quoted\" 'single' `ticked` “curly”",
    "3.14159 1,000,000 1e-5",
    "data: [DONE]\n\ndata: {}",
    "\tTab and\ttabs\t",
    "Tell me more.",
    "x",
    "Goodbye \N{WAVING HAND SIGN}",
)
"""Answers, one a turn; one of them is longer than MAX_TOKENS."""

NOTHING: Final = ("", " \n")
"""Answers that say nothing: some clients do not send them back."""


def questions(number: int, name: str) -> list[str]:
    """What is said, each before an answer; the client's own words count to the letter.

    Args:
        name: of the conversation, which begins as no other one does: it is not to be found in another's session.
    """
    return [f"This is {name}.", *map(_question, range(1, number))]


def _question(turn: int) -> str:
    return f"  Turn {turn}: what is next?  \n" if turn % 4 == 1 else f"Turn {turn}: caf\u00e9 {'😀' * (turn % 3)}, or?"


def thought(turn: int) -> str:
    """Of a model that thinks before it answers; "" where it answers at once."""
    return f"\nHm, turn {turn}.\nSo be it…\n" if turn % 3 else ""


def act(turn: int) -> str:
    """A step of an agent that acts, and what it makes up behind the stop text."""
    return f"Thought: I have to look at item {turn}.\nAction: look[{turn}]\n{OBSERVATION} it is made up. Thought: x"


def acted(turn: int) -> str:
    """What a client gets of `act`."""
    return act(turn).partition(OBSERVATION)[0]


def observed(turn: int) -> str:
    """What the client says then."""
    return f"{OBSERVATION} item {turn} is {turn * turn}."
