"""What the user of a bench says: the same for the same seed."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from kakeya.text.chat_tokenizer import ChatTokenizer

KINDS = (
    "Hello! My name is {name}, I live in {place}, and I have a {color} {thing} and "
    "a {animal}. What would you like to know?",
    "{name} and I are planning a trip to {place} in {month}. How many days should "
    "we stay, and where do we find a {thing}?",
    "I bought a {color} {thing} in {place} for {number} coins. Please remember "
    "that, and tell me if it was too much for it.",
    "Please write a short note to {name}: the {color} {thing} arrives in {place} "
    "on the {number}th of {month}, before noon.",
    "If {number} {animal}s eat {number} apples a week, how many apples do they eat "
    "in {month}, and what does {name} say to it?",
    "Give me {number} reasons why a {animal} from {place} cannot be {color}, and "
    "the best one first. {name} asked me that.",
    "What did I say about {name} and the {thing} from {place}? Was it the "
    "{color} one, or the one that came in {month}?",
    "Let us talk about something else. Do you like {animal}s? I have {number} of "
    "them, the {color} one is called {name}.",
    "Correct this, and say what was wrong: me and {name} has saw the {color} {animal} "
    "in {place}, it were more big than a {thing}.",
    "The log says: {month} {number}, {place}, the {color} {thing} answered {name} "
    "after {number} seconds. What does it mean?",
    "Which is larger, a {animal} or a {thing}, and which one would {name} rather "
    "take along to {place} in {month}, and why?",
    "Summarize what we have said about {name} and {place} in two sentences, and "
    "begin with the {color} {thing} of {month}.",
)
"""Messages with places for words, all of about 23: turns can only be compared where they have about the same to do."""

WORDS = {
    "name": ("Laura", "Ben", "Chiara", "Deniz", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jun", "Kofi", "Lena"),
    "place": ("Oslo", "Lima", "Kyoto", "Accra", "Perth", "Quito", "Riga", "Tunis", "Utrecht", "Hanoi", "Porto", "Nome"),
    "color": ("red", "green", "blue", "yellow", "black", "white", "brown", "grey", "orange", "purple"),
    "animal": ("falcon", "owl", "fox", "badger", "otter", "heron", "goat", "mole", "whale", "lynx", "toad", "crane"),
    "thing": ("lamp", "chair", "clock", "bicycle", "kettle", "violin", "ladder", "mirror", "stove", "umbrella"),
    "month": ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    "number": tuple(str(number) for number in range(2, 29)),
}
"""What stands in each place."""


class NoPrompts(Exception):
    """A file of prompts cannot be read, or holds none."""


class RandomTokens:
    """So many random ids a turn: for models without a tokenizer, and turns that are all alike."""

    def __init__(self, num_tokens: int, vocab_size: int, *, seed: int, conversation: int) -> None:
        self._num_tokens = num_tokens
        self._vocab_size = vocab_size
        self._draw = random.Random(f"{seed}/{conversation}")

    def next_turn(self, last_token_id: int | None) -> list[int]:
        """The tokens to append for the next turn of one conversation.

        Args:
            last_token_id: of the answer before; None at the start, and where an answer never came.
        """
        return [self._draw.randrange(self._vocab_size) for _ in range(self._num_tokens)]


class Texts:
    """Messages, tokenized as a chat: only what is new of each turn."""

    def __init__(self, tokenizer: ChatTokenizer, messages: Iterator[str]) -> None:
        self._tokenizer = tokenizer
        self._messages = messages
        self._has_begun = False

    def next_turn(self, last_token_id: int | None) -> list[int]:
        message = next(self._messages)
        if self._has_begun:
            return self._tokenizer.next_prompt(message, last_token_id)
        self._has_begun = True
        return self._tokenizer.first_prompt(message, None)


Prompts = RandomTokens | Texts


def messages(path: Path | None, *, seed: int, conversation: int) -> Iterator[str]:
    """What is said in one conversation, without end, in an order that is drawn anew for each time through.

    Args:
        path: a file of messages, one a line. Without one the bench writes its own, of a few kinds with drawn words.

    Raises:
        NoPrompts: now, not at the first message.
    """
    draw = random.Random(f"{seed}/{conversation}")
    if path is not None:
        return _shuffled(_lines(path), draw)
    return (
        kind.format(**{name: draw.choice(words) for name, words in WORDS.items()}) for kind in _shuffled(KINDS, draw)
    )


def _shuffled(items: Sequence[str], draw: random.Random) -> Iterator[str]:
    """All of them, again and again: so every tenth of a run has about the same mixture."""
    while True:
        yield from draw.sample(items, len(items))


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise NoPrompts(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NoPrompts(f"{path} is no text in UTF-8") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise NoPrompts(f"{path} holds no prompt: one a line")
    return lines
