"""What is said in the conversation: the same to all players."""

from collections.abc import Iterator
from dataclasses import dataclass

from kakeya.bench.prompts import RandomTokens


@dataclass(frozen=True, slots=True)
class Said:
    """One turn's tokens.

    Attributes:
        index: from 1 on.
        new_tokens: to be sent.
        stand_in: takes an answer's place in the history of a player whose answer is not known.
    """

    index: int
    new_tokens: list[int]
    stand_in: list[int]


def conversation(num_turns: int, num_new_tokens: int, max_tokens: int, *, vocab_size: int, seed: int) -> Iterator[Said]:
    """All its turns, of random ids; the same for the same seed."""
    new = RandomTokens(num_new_tokens, vocab_size, seed=seed, conversation=0)
    stand_ins = RandomTokens(max_tokens, vocab_size, seed=seed, conversation=1)
    for index in range(1, num_turns + 1):
        yield Said(index, new.next_turn(None), stand_ins.next_turn(None))
