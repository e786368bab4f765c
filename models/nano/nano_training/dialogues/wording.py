"""How people vary what they type."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def one_of(random: Random, *choices: T) -> T:
    return random.choice(choices)


def typed(random: Random, text: str) -> str:
    """As a person types it: now and then in lower case, or without the mark at its end."""
    habit = random.random()
    if habit < 0.1:
        text = text[0].lower() + text[1:]
    if 0.06 < habit < 0.2:
        text = text.rstrip(".?!")
    return text


def listed(words: Sequence[str], last: str = "and") -> str:
    """a, b and c"""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else words[0]


def digits(random: Random, count: int) -> str:
    """A number of exactly so many digits, as text."""
    return str(random.randrange(10 ** (count - 1), 10**count))
