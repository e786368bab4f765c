"""What the user of a bench says: the same for the same seed."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_bench.conversation import phrases


class NoPrompts(Exception):
    """A file of prompts cannot be read, or holds none."""


class Prompts(Protocol):
    """One conversation's share of the tokens."""

    def next_turn(self, last_token_id: int | None) -> list[int]:
        """The tokens to append for the next turn.

        Args:
            last_token_id: of the answer before; None at the start, and where an answer never came.
        """
        ...


class RandomTokens:
    """So many random ids a turn: for models without a tokenizer, and turns that are all alike."""

    def __init__(self, num_tokens: int, vocab_size: int, *, seed: int, conversation: int) -> None:
        self._num_tokens = num_tokens
        self._vocab_size = vocab_size
        self._draw = random.Random(f"{seed}/{conversation}")

    def next_turn(self, last_token_id: int | None) -> list[int]:
        """As in `Prompts`."""
        return [self._draw.randrange(self._vocab_size) for _ in range(self._num_tokens)]


class Texts:
    """Messages, tokenized as a chat: only what is new of each turn."""

    def __init__(self, tokenizer: ChatTokenizer, messages: Iterator[str]) -> None:
        self._tokenizer = tokenizer
        self._messages = messages
        self._has_begun = False

    def next_turn(self, last_token_id: int | None) -> list[int]:
        """As in `Prompts`."""
        message = next(self._messages)
        if self._has_begun:
            return self._tokenizer.next_prompt(message, last_token_id)
        self._has_begun = True
        return self._tokenizer.first_prompt(message, None)


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
        kind.format(**{name: draw.choice(words) for name, words in phrases.WORDS.items()})
        for kind in _shuffled(phrases.KINDS, draw)
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
