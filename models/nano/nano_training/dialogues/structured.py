"""Lists and JSON, from what the user gives."""

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from nano_training.dialogues import words
from nano_training.dialogues.message import Message, exchange
from nano_training.dialogues.wording import listed, typed

_GROUPS: Final = {
    "fruits": words.FRUITS, "colors": words.COLORS, "animals": words.ANIMALS, "cities": words.CITIES,
    "names": words.NAMES, "foods": words.FOODS, "drinks": words.DRINKS, "jobs": words.JOBS,
}  # fmt: skip
_COUNTS: Final = {2: "two", 3: "three", 4: "four", 5: "five"}
_PERSON: Final[dict[str, Callable[[Random], Any]]] = {
    "name": lambda random: random.choice(words.NAMES),
    "age": lambda random: random.randint(5, 95),
    "city": lambda random: random.choice(words.CITIES),
    "job": lambda random: random.choice(words.JOBS),
    "color": lambda random: random.choice(words.COLORS),
    "day": lambda random: random.choice(words.DAYS),
    "pet": lambda random: random.choice(words.PETS),
    "hobby": lambda random: random.choice(words.HOBBIES),
}


def make_list(random: Random) -> list[Message]:
    """Bulleted or numbered."""
    items = random.sample(words.THINGS_TO_BUY + words.OBJECTS, random.randint(2, 7))
    given = listed(items) if random.random() < 0.6 else ", ".join(items)
    if random.random() < 0.5:
        question = random.choice(("Make a list of {}.", "Make a shopping list: {}", "Write a list: {}", "List {}."))
        answer = "\n".join(f"- {item}" for item in items)
    else:
        question = random.choice(("Make a numbered list of {}.", "Number these: {}", "Write a numbered list: {}"))
        answer = "\n".join(f"{number}. {item}" for number, item in enumerate(items, 1))
    return exchange(typed(random, question.format(given)), answer)


def name_some(random: Random) -> list[Message]:
    """So many of a kind."""
    (kind, members), (count, word) = random.choice(list(_GROUPS.items())), random.choice(list(_COUNTS.items()))
    question = random.choice(("Name {} {}.", "Tell me {} {}.", "Give me {} {}.")).format(word, kind)
    return exchange(typed(random, question), f"{listed(random.sample(members, count))}.")


def count_to(random: Random) -> list[Message]:
    end = random.randint(2, 20)
    return exchange(typed(random, f"Count to {end}."), ", ".join(str(number) for number in range(1, end + 1)))


def json_object(random: Random) -> list[Message]:
    """An object of given fields."""
    fields = {key: _PERSON[key](random) for key in random.sample(list(_PERSON), random.randint(1, 4))}
    if random.random() < 0.5:
        given = listed([f"{key} {value}" for key, value in fields.items()])
        question = random.choice(("Write JSON with {}.", "Make a JSON object with {}.", "Give me JSON with {}."))
    else:
        given = ", ".join(f"{key}={value}" for key, value in fields.items())
        question = random.choice(("Write as JSON: {}", "As JSON: {}", "Convert to JSON: {}"))
    return exchange(question.format(given), json.dumps(fields))


def json_array(random: Random) -> list[Message]:
    """An array of given words or numbers."""
    if random.random() < 0.7:
        values: list[Any] = random.sample(words.THINGS_TO_BUY + words.OBJECTS, random.randint(2, 6))
    else:
        values = [random.randint(0, 99) for _ in range(random.randint(2, 6))]
    question = random.choice(("Write a JSON array of {}.", "Make a JSON list of {}.", "As a JSON array: {}"))
    return exchange(question.format(listed([str(value) for value in values])), json.dumps(values))
