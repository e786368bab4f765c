"""Facts: told once, asked later, in plain English that any chat model understands."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from kakeya_bench.quality.material import words

Draw = Callable[[Random], str]

ACKNOWLEDGED: Final = "OK, I will remember that."
"""Says nothing of the value, so that the telling stays its only place."""

_TOLD: Final = ("My {n} is {v}.", "Remember that my {n} is {v}.", "By the way, my {n} is {v}.")
_ASKED: Final = ("What is my {n}?", "Do you remember my {n}?", "Can you tell me my {n}?")


class Exchange(NamedTuple):
    """What a user says and what the assistant answers, both as plain text."""

    question: str
    answer: str


@dataclass(frozen=True)
class Fact:
    """One fact.

    Attributes:
        key: what it is about; two facts of a dialogue never share it.
        value: what an answer has to hold; two facts of a dialogue never share it either.
        told: what the user says.
        noted: that sentence as a system prompt has it.
        answer: to its questions.
        asked: questions for it.
    """

    key: str
    value: str
    told: str
    noted: str
    answer: str
    asked: tuple[str, ...]

    @property
    def telling(self) -> Exchange:
        return Exchange(self.told, ACKNOWLEDGED)

    def gives_away(self, other: "Fact") -> bool:
        """Whether the other's value stands in what is said of this one: a teacher is a person and a job."""
        return stands_in(other.value, " ".join((self.told, self.noted, self.answer, *self.asked)))

    def asking(self, random: Random) -> Exchange:
        """A question with its answer."""
        return Exchange(random.choice(self.asked), self.answer)


@dataclass(frozen=True)
class _Attribute:
    """Something that a person has: `My {name} is {value}.`, and other ways to say it and to ask for it."""

    name: str
    draw: Draw
    told: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()


def _from(choices: tuple[str, ...]) -> Draw:
    return lambda random: random.choice(choices)


def _digits(count: int) -> Draw:
    return lambda random: str(random.randrange(10 ** (count - 1), 10**count))


def _password(random: Random) -> str:
    return "-".join(random.sample(words.SECRETS, 2))


_name, _pet = _from(words.NAMES), _from(words.PETS)
_ATTRIBUTES: Final = (
    _Attribute("name", _name, ("I am {v}.", "Call me {v}."), ("Who am I?",)),
    _Attribute("dog's name", _pet, ("My dog is called {v}.", "I have a dog called {v}."), ("What is my dog called?",)),
    _Attribute("cat's name", _pet, ("My cat is called {v}.", "I have a cat called {v}."), ("What is my cat called?",)),
    _Attribute("horse's name", _pet, ("My horse is called {v}.",), ("What is my horse called?",)),
    _Attribute("sister's name", _name, ("My sister is called {v}.",), ("What is my sister called?",)),
    _Attribute("brother's name", _name, ("My brother is called {v}.",), ("What is my brother called?",)),
    _Attribute("mother's name", _name, ("My mother is called {v}.",)),
    _Attribute("teacher's name", _name, ("My teacher is called {v}.",), ("Who is my teacher?",)),
    _Attribute("doctor's name", _name, ("My doctor is called {v}.",), ("Who is my doctor?",)),
    _Attribute("best friend", _name, ("{v} is my best friend.",), ("Who is my best friend?",)),
    _Attribute("boss", _name, ("{v} is my boss.",), ("Who is my boss?",)),
    _Attribute("home city", _from(words.CITIES), ("I live in {v}.",), ("Where do I live?", "In which city do I live?")),
    _Attribute("job", _from(words.JOBS), ("I work as a {v}.",), ("What do I do for work?",)),
    _Attribute("room number", _digits(3), ("I am in room {v}.",), ("Which room am I in?",)),
    _Attribute("locker number", _digits(3)),
    _Attribute("door code", _digits(4), ("The code of my door is {v}.",), ("What is the code of my door?",)),
    _Attribute("phone code", _digits(4)),
    _Attribute("password", _password),
)


def draw(random: Random, known: Collection[Fact] = ()) -> Fact:
    """A fact that shares no key with those that are known, and whose value stands in none of them, nor theirs in it."""
    keys = {fact.key for fact in known}
    while True:
        attribute = random.choice(_ATTRIBUTES)
        fact = _fact(random, attribute, attribute.draw(random))
        if fact.key not in keys and not any(fact.gives_away(other) or other.gives_away(fact) for other in known):
            return fact


def stands_in(value: str, text: str) -> bool:
    """Whether a text holds a value as words of its own, in capitals or not."""
    return re.search(rf"(?<!\w){re.escape(value.casefold())}(?!\w)", text.casefold()) is not None


def _fact(random: Random, attribute: _Attribute, value: str) -> Fact:
    told = random.choice((*_TOLD, *attribute.told * 2))
    return Fact(
        key=attribute.name,
        value=value,
        told=told.format(n=attribute.name, v=value),
        noted=f"The user's {attribute.name} is {value}.",
        answer=f"Your {attribute.name} is {value}.",
        asked=(*(way.format(n=attribute.name) for way in _ASKED), *attribute.asked),
    )
