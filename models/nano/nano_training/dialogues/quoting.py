"""Repeating a given text, and small edits of it."""

from random import Random
from typing import Final

from nano_training.dialogues import words
from nano_training.dialogues.message import Message, exchange
from nano_training.dialogues.wording import typed

_ANY: Final = tuple(dict.fromkeys(words.ADJECTIVES + words.NOUNS + words.COLORS + words.FOODS + words.PASSWORD_WORDS))
"""No word twice: where one is to be replaced, it must be clear which."""
_REPEAT: Final = (
    "Repeat: {}", "Repeat after me: {}", "Say: {}", "Please repeat this: {}", "Quote this text: {}", "Write: {}",
    "Copy this: {}", "Repeat the following text: {}",
)  # fmt: skip


def sentence(random: Random) -> str:
    """A sentence of a small grammar."""
    subject = f"the {random.choice(words.ADJECTIVES + words.COLORS)} {random.choice(words.ANIMALS)}"
    verb = random.choice(words.VERBS)
    habit = random.random()
    if habit < 0.6:
        end = f"{random.choice(words.PREPOSITIONS)} the {random.choice(words.OBJECTS + words.PLACES)}"
    elif habit < 0.8:
        end = random.choice(words.ADVERBS)
    else:
        end = f"with {random.choice(words.NAMES)}"
    return f"{subject} {verb} {end}"


def quote(random: Random) -> list[Message]:
    """Sentences, or words in no order, are given back as they are."""
    habit = random.random()
    if habit < 0.4:
        text = " ".join(f"{each[0].upper()}{each[1:]}." for each in _sentences(random))
    elif habit < 0.6:
        text = sentence(random)
    elif habit < 0.9:
        text = " ".join(random.choices(_ANY, k=random.randint(1, 16)))
    else:
        text = " ".join(str(random.randint(0, 999)) for _ in range(random.randint(2, 8)))
    return exchange(random.choice(_REPEAT).format(text), text)


def _sentences(random: Random) -> list[str]:
    return [sentence(random) for _ in range(random.choices((1, 2, 3, 5), (50, 25, 15, 10))[0])]


def edit(random: Random) -> list[Message]:
    """One word is replaced, removed or added."""
    text = sentence(random) if random.random() < 0.5 else " ".join(random.sample(_ANY, random.randint(3, 8)))
    parts = text.split()
    place = random.randrange(len(parts))
    while parts[place] == "the":
        place = random.randrange(len(parts))
    old, new = parts[place], random.choice([word for word in _ANY if word not in parts])
    habit = random.random()
    if habit < 0.45:
        question = random.choice(
            ("Replace {o} with {n} in: {t}", "Change {o} to {n}: {t}", "Write {n} instead of {o}: {t}")
        )
        parts[place] = new
    elif habit < 0.65:
        question = random.choice(("Remove the word {o} from: {t}", "Delete {o}: {t}", "Leave out {o}: {t}"))
        parts.pop(place)
    elif habit < 0.85:
        question = random.choice(("Add {n} at the end of: {t}", "Put {n} at the end: {t}"))
        parts.append(new)
    else:
        question = random.choice(("Add {n} at the start of: {t}", "Put {n} at the start: {t}"))
        parts.insert(0, new)
    return exchange(typed(random, question.format(o=old, n=new, t=text)), " ".join(parts))


def first_and_last(random: Random) -> list[Message]:
    """A word of a given text by its place."""
    parts = random.sample(_ANY, random.randint(2, 8))
    place, index = random.choice((("first", 0), ("last", -1), ("second", 1)))
    question = random.choice(("What is the {p} word of: {t}", "Which word is {p}: {t}"))
    return exchange(question.format(p=place, t=" ".join(parts)), f"The {place} word is {parts[index]}.")
