"""Facts: told once, asked later. What is asked and was never told is not known."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from nano_training.dialogues import words
from nano_training.dialogues.message import Message, exchange
from nano_training.dialogues.wording import digits, typed

Draw = Callable[[Random], str]


def _from(choices: tuple[str, ...]) -> Draw:
    return lambda random: random.choice(choices)


def _password(random: Random) -> str:
    return "-".join(random.sample(words.PASSWORD_WORDS, 2))


def _clock(random: Random) -> str:
    return f"{random.randint(1, 12)}:{random.choice(('00', '15', '30', '45'))}"


def _object(random: Random) -> str:
    return f"{random.choice(words.COLORS)} {random.choice(words.OBJECTS)}"


def _code(random: Random) -> str:
    return digits(random, 4)


_name, _pet, _color = _from(words.NAMES), _from(words.PETS), _from(words.COLORS)


@dataclass(frozen=True)
class Attribute:
    """Something that a person has: `My {name} is {value}.`

    Attributes:
        draw: a value.
        told: other ways in which a person says it.
        asked: other questions for it.
    """

    name: str
    draw: Draw
    told: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()


ATTRIBUTES: Final = (
    Attribute(
        "name",
        _name,
        ("I am {v}.", "I'm {v}.", "Call me {v}.", "Hello, my name is {v}.", "Hi, I am {v}."),
        ("Who am I?", "What am I called?", "Do you know who I am?"),
    ),
    Attribute(
        "dog's name",
        _pet,
        ("My dog is called {v}.", "I have a dog called {v}.", "I have a dog named {v}."),
        ("What is my dog called?", "How is my dog called?"),
    ),
    Attribute(
        "cat's name",
        _pet,
        ("My cat is called {v}.", "I have a cat called {v}.", "I have a cat named {v}."),
        ("What is my cat called?", "How is my cat called?"),
    ),
    Attribute("horse's name", _pet, ("My horse is called {v}.",), ("What is my horse called?",)),
    Attribute(
        "sister's name",
        _name,
        ("My sister is called {v}.", "I have a sister called {v}."),
        ("What is my sister called?",),
    ),
    Attribute(
        "brother's name",
        _name,
        ("My brother is called {v}.", "I have a brother called {v}."),
        ("What is my brother called?",),
    ),
    Attribute("mother's name", _name, ("My mother is called {v}.",)),
    Attribute("teacher's name", _name, ("My teacher is called {v}.",), ("Who is my teacher?",)),
    Attribute("doctor's name", _name, ("My doctor is called {v}.",), ("Who is my doctor?",)),
    Attribute("best friend", _name, ("{v} is my best friend.",), ("Who is my best friend?",)),
    Attribute("boss", _name, ("{v} is my boss.",), ("Who is my boss?",)),
    Attribute(
        "favorite color",
        _color,
        ("The color I like best is {v}.", "My favourite color is {v}.", "My favourite colour is {v}."),
        ("Which color do I like best?", "What is my favourite color?", "What is my favourite colour?"),
    ),
    Attribute(
        "favorite food",
        _from(words.FOODS),
        ("The food I like best is {v}.", "My favourite food is {v}."),
        ("What do I like to eat?", "What is my favourite food?"),
    ),
    Attribute("favorite drink", _from(words.DRINKS), ("My favourite drink is {v}.",), ("What do I like to drink?",)),
    Attribute("favorite fruit", _from(words.FRUITS)),
    Attribute("favorite animal", _from(words.ANIMALS), ("My favourite animal is the {v}.",)),
    Attribute("favorite day", _from(words.DAYS)),
    Attribute(
        "home city",
        _from(words.CITIES),
        ("I live in {v}.", "My home is in {v}.", "I come from {v}."),
        ("Where do I live?", "In which city do I live?", "Which city do I live in?"),
    ),
    Attribute(
        "job", _from(words.JOBS), ("I am a {v}.", "I work as a {v}."), ("What do I do for work?", "What do I work as?")
    ),
    Attribute("hobby", _from(words.HOBBIES), ("I like {v}.",), ("What do I like to do?",)),
    Attribute("instrument", _from(words.INSTRUMENTS), ("I play the {v}.",), ("Which instrument do I play?",)),
    Attribute(
        "age",
        lambda random: str(random.randint(5, 95)),
        ("I am {v} years old.", "I'm {v} years old."),
        ("How old am I?",),
    ),
    Attribute("lucky number", lambda random: str(random.randint(1, 99))),
    Attribute("room number", lambda random: digits(random, 3), ("I am in room {v}.",), ("Which room am I in?",)),
    Attribute("door code", _code, ("The code of my door is {v}.",), ("What is the code of my door?",)),
    Attribute("phone code", _code),
    Attribute("locker number", lambda random: digits(random, 3)),
    Attribute("password", _password),
    Attribute("birthday month", _from(words.MONTHS), ("I was born in {v}.",), ("In which month was I born?",)),
    Attribute(
        "meeting day",
        _from(words.DAYS),
        ("My meeting is on {v}.",),
        ("On which day is my meeting?", "When is my meeting?"),
    ),
    Attribute("train time", _clock, ("My train leaves at {v}.",), ("When does my train leave?",)),
    Attribute(
        "car color",
        _color,
        ("My car is {v}.", "I have a {v} car."),
        ("Which color is my car?", "What color is my car?"),
    ),
    Attribute(
        "secret word",
        _from(words.PASSWORD_WORDS),
        ("The secret word is {v}.",),
        ("What is the secret word?", "Which word is the secret word?"),
    ),
)

_OF_OTHERS: Final = tuple(a for a in ATTRIBUTES if a.name not in ("name", "secret word", "password"))
_TOLD: Final = (
    "My {n} is {v}.",
    "My {n} is {v}.",
    "Remember that my {n} is {v}.",
    "Please remember: my {n} is {v}.",
    "By the way, my {n} is {v}.",
    "Just so you know, my {n} is {v}.",
    "Please note that my {n} is {v}.",
)
_ASKED: Final = (
    "What is my {n}?",
    "What is my {n}?",
    "What's my {n}?",
    "Do you remember my {n}?",
    "Can you tell me my {n}?",
    "Remind me, what is my {n}?",
    "Tell me my {n}.",
    "What did I say my {n} is?",
    "What was my {n}?",
)


@dataclass(frozen=True)
class Fact:
    """One fact.

    Attributes:
        key: two facts of one conversation never share it.
        value: what an answer has to hold.
        told: what a user says.
        noted: that sentence as a system prompt has it.
        answer: to its questions.
        asked: its questions.
    """

    key: str
    value: str
    told: str
    noted: str
    answer: str
    asked: tuple[str, ...]


def of_user(random: Random) -> Fact:
    attribute = random.choice(ATTRIBUTES)
    name, value = attribute.name, attribute.draw(random)
    ways = _TOLD if random.random() < 0.5 or not attribute.told else attribute.told
    answer = f"Your {name} is {value}."
    secret = name == "secret word"
    return Fact(
        key=f"my {name}",
        value=value,
        told=random.choice(ways).format(n=name, v=value),
        noted=f"The secret word is {value}." if secret else f"The user's {name} is {value}.",
        answer=f"The secret word is {value}." if secret else answer,
        asked=attribute.asked if secret else (*(way.format(n=name) for way in _ASKED), *attribute.asked * 2),
    )


def of_another(random: Random) -> Fact:
    attribute, person = random.choice(_OF_OTHERS), random.choice(words.NAMES)
    name, value = attribute.name, attribute.draw(random)
    answer = f"{person}'s {name} is {value}."
    return Fact(
        key=f"{person}'s {name}",
        value=value,
        told=random.choice(("{}", "{}", "Remember: {}", "Please note: {}")).format(answer),
        noted=answer,
        answer=answer,
        asked=tuple(
            way.format(f"{person}'s {name}")
            for way in ("What is {}?", "Do you remember {}?", "Tell me {}.", "What was {}?")
        ),
    )


def of_thing(random: Random) -> Fact:
    if random.random() < 0.5:
        thing, place = _object(random), random.choice(words.PLACES)
        answer = f"The {thing} is in the {place}."
        asked: tuple[str, ...] = (
            f"Where is the {thing}?",
            f"Do you know where the {thing} is?",
            f"Where did I put the {thing}?",
        )
        told = random.choice((answer, f"I put the {thing} in the {place}."))
        return Fact(f"where {thing}", place, told, answer, answer, asked)
    place, value = random.choice(words.PLACES), _code(random)
    answer = f"The code of the {place} is {value}."
    asked = (
        f"What is the code of the {place}?",
        f"Do you remember the code of the {place}?",
        f"Which code has the {place}?",
    )
    return Fact(f"code {place}", value, answer, answer, answer, asked)


def fact(random: Random) -> Fact:
    return random.choices((of_user, of_another, of_thing), (50, 25, 25))[0](random)


def tell(random: Random, *facts: Fact) -> list[Message]:
    """The user tells; the assistant repeats it, or only says that it will remember."""
    told = typed(random, facts[0].told) if len(facts) == 1 else _together(random, [each.told for each in facts])
    if random.random() < 0.5:
        return exchange(told, " ".join(["Got it.", *(each.answer for each in facts)]))
    return exchange(
        told, random.choice(("OK, I will remember that.", "Thank you, I will remember that.", "Good to know."))
    )


def _together(random: Random, told: list[str]) -> str:
    """As sentences, or as one."""
    if len(told) == 2 and random.random() < 0.5:
        first, second = told
        second = second if second.startswith("I ") else second[0].lower() + second[1:]
        return f"{first.rstrip('.')} and {second}"
    return " ".join(told)


def ask(random: Random, known: Fact) -> list[Message]:
    return exchange(typed(random, random.choice(known.asked)), known.answer)


def ask_unknown(random: Random, never_told: Fact) -> list[Message]:
    """The honest answer to a question about something that is not in sight."""
    return exchange(typed(random, random.choice(never_told.asked)), unknown_answer())


def unknown_answer() -> str:
    return "I do not know. I cannot see that in our conversation."
