"""Facts: told once, asked later, in plain English that any chat model understands."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES: Final = _words(
    "Anna Ben Clara David Emma Grace Henry Iris Jack Karen Leo Maria Noah Olivia Paul Quinn Rosa Sam Tina Umar Vera "
    "Walter Yara Zoe Adam Bella Carl Diana Erik Fiona George Hannah Ivan Julia Kevin Laura Marco Nina Oscar Petra "
    "Sofia Tom Ursula Victor Wendy Alice Cora Daniel Elena Frank Gina Hugo Jonas Lukas Nora Otto Priya Robin Sara Theo"
)
PETS: Final = _words(
    "Rex Bello Luna Milo Coco Rocky Daisy Simba Nala Molly Lucky Shadow Ginger Smokey Oreo Biscuit Teddy Ziggy Pixel "
    "Waffle Noodle Mochi Cleo Loki Thor Bandit Willow Hazel Cookie Peanut Rusty Scout Snowy Buddy"
)
CITIES: Final = _words(
    "Paris Rome Berlin Madrid London Lisbon Vienna Prague Oslo Athens Dublin Cairo Tokyo Lima Quito Boston Chicago "
    "Seattle Denver Toronto Sydney Delhi Mumbai Seoul Osaka Geneva Zurich Milan Naples Venice Hamburg Munich Warsaw "
    "Helsinki Stockholm Copenhagen Brussels Amsterdam Porto Valencia Nairobi Lagos Accra Havana Bogota Montreal"
)
JOBS: Final = _words(
    "doctor teacher baker pilot nurse painter lawyer farmer singer writer driver engineer gardener plumber chemist "
    "dentist waiter tailor carpenter butcher librarian architect journalist mechanic sailor"
)
SECRETS: Final = _words(
    "maple tiger river stone cloud amber falcon ocean pepper comet forest lemon marble winter rocket velvet copper "
    "meadow harbor saturn bamboo canyon ember glacier island jungle lantern mango nectar"
)
ANIMALS: Final = _words("fox bear wolf owl rabbit mouse duck goat sheep cow pig frog snake lion crow deer otter badger")
OBJECTS: Final = _words(
    "key book lamp phone wallet hat coat bag map ring clock cup knife ladder camera umbrella basket"
)
PLACES: Final = _words(
    "kitchen garden garage cellar attic office library bathroom bedroom hall shed barn tower station"
)
ADJECTIVES: Final = _words("small big old young quiet happy clever lazy brave shy fast slow warm cold tall tiny gentle")
VERBS: Final = _words("sleeps runs sings waits eats jumps hides plays walks sits dances rests works swims dreams")
GOODS: Final = _words(
    "apples pears plums bread butter cheese eggs rice pasta salt sugar flour onions carrots beans soap"
)
OPPOSITES: Final = _words(
    "hot-cold big-small old-young fast-slow day-night up-down full-empty hard-soft wet-dry high-low"
)
CAPITALS: Final = _words("France-Paris Italy-Rome Germany-Berlin Spain-Madrid Norway-Oslo Greece-Athens Japan-Tokyo")


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
    return "-".join(random.sample(SECRETS, 2))


_name, _pet = _from(NAMES), _from(PETS)
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
    _Attribute("home city", _from(CITIES), ("I live in {v}.",), ("Where do I live?", "In which city do I live?")),
    _Attribute("job", _from(JOBS), ("I work as a {v}.",), ("What do I do for work?",)),
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
