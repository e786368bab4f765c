"""An exchange: what a user says and what the assistant answers."""

from typing import NamedTuple


class Exchange(NamedTuple):
    """Both as plain text."""

    question: str
    answer: str
