"""Sums, differences and products of whole numbers from 0 to 99 (factors: 0 to 10)."""

from dataclasses import dataclass
from random import Random
from typing import Final

from nano_training.dialogues.message import Message, exchange
from nano_training.dialogues.wording import listed, typed

MAX_NUMBER: Final = 99
MAX_FACTOR: Final = 10
_WORD: Final = {"+": "plus", "-": "minus", "*": "times"}
_PAIR_OF_ORDERS: Final = {
    "+": ("Add {a} and {b}.", "What is the sum of {a} and {b}?", "Add {b} to {a}."),
    "-": ("Subtract {b} from {a}.", "Take {b} from {a}.", "What is the difference of {a} and {b}?"),
    "*": ("Multiply {a} by {b}.", "Multiply {a} and {b}.", "What is the product of {a} and {b}?"),
}


@dataclass(frozen=True)
class Problem:
    """An exercise and its result."""

    left: int
    operator: str
    right: int

    @property
    def result(self) -> int:
        if self.operator == "*":
            return self.left * self.right
        return self.left + self.right if self.operator == "+" else self.left - self.right

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"

    @property
    def solved(self) -> str:
        return f"{self} = {self.result}"


def problem(random: Random) -> Problem:
    operator = random.choices("+-*", (45, 35, 20))[0]
    if operator == "*":
        return Problem(random.randint(0, MAX_FACTOR), "*", random.randint(0, MAX_FACTOR))
    left, right = random.randint(0, MAX_NUMBER), random.randint(0, MAX_NUMBER)
    if operator == "-" and left < right:
        left, right = right, left
    return Problem(left, operator, right)


def arithmetic(random: Random) -> list[Message]:
    """One to four problems at once."""
    problems = [problem(random) for _ in range(random.choices((1, 2, 3, 4), (60, 16, 12, 12))[0])]
    return asked(random, problems)


def asked(random: Random, problems: list[Problem]) -> list[Message]:
    """The exchange on these problems."""
    if len(problems) == 1:
        return exchange(_question(random, problems[0]), f"{problems[0].solved}.")
    texts = [_in_symbols(random, each) for each in problems]
    question = random.choice(("What is {}?", "Calculate {}.", "{}", "How much is {}?", "Compute {}."))
    return exchange(typed(random, question.format(listed(texts))), f"{listed([each.solved for each in problems])}.")


def _question(random: Random, each: Problem) -> str:
    habit = random.random()
    if habit < 0.25:
        return typed(random, random.choice(_PAIR_OF_ORDERS[each.operator]).format(a=each.left, b=each.right))
    symbols = _in_symbols(random, each)
    if habit < 0.4:
        return f"{symbols}{random.choice(('', ' =', '=', '?', ' = ?'))}"
    question = random.choice(
        ("What is {}?", "How much is {}?", "Calculate {}.", "Can you tell me what {} is?", "Please compute {}.",
         "What's {}?", "What is the result of {}?", "Do you know what {} is?")
    )  # fmt: skip
    return typed(random, question.format(symbols))


def _in_symbols(random: Random, each: Problem) -> str:
    habit = random.random()
    if habit < 0.25:
        return f"{each.left} {_WORD[each.operator]} {each.right}"
    if habit < 0.4:
        return f"{each.left}{each.operator}{each.right}"
    if each.operator == "*" and habit < 0.5:
        return f"{each.left} x {each.right}"
    return str(each)
