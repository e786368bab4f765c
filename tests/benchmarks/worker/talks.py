"""What sessions are given in `make bench-speculation`: transcripts of agents, texts to quote, and prose."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from tokenizers import Tokenizer

from kakeya_worker.engine.sampling.sampling import Sampling
from nano_training.dialogues.message import Piece, written
from nano_training.dialogues.quoting import edit, quote
from tests.benchmarks.worker.engine_session import GREEDY
from tests.loops.recordings import Recording

_END = "<|im_end|>"
_ANSWER_TOKENS = 200
_PROSE = "<|im_start|>user\nPlease tell me a long story.<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class Turn:
    """What is appended, and the most tokens that are generated behind it, at least 1."""

    given: tuple[int, ...]
    num_tokens: int


@dataclass(frozen=True)
class Talk:
    """What one session is given, turn by turn.

    Attributes:
        dictation: its whole history, where what is generated is known before.
        eos_token_ids: end an answer.
    """

    turns: Sequence[Turn]
    dictation: Sequence[int] = ()
    sampling: Sampling = GREEDY
    eos_token_ids: Collection[int] = ()


Choose = Callable[[Sequence[int]], Sequence[int]]
"""How many of the first tokens of each answer are generated, of answers of so many; the rest is given."""


def transcript(recording: Recording, tokenizer: Tokenizer, choose: Choose, max_tokens: int) -> Talk:
    """A recording, whose answers are dictated: its first exchanges, of so many tokens at most, but for the first."""
    questions = [f"<|im_start|>user\n{text}{_END}\n<|im_start|>assistant\n" for text in recording.questions]
    answers = [f"{text}{_END}\n" for text in recording.answers]
    asked, answered = ([each.ids for each in tokenizer.encode_batch(texts)] for texts in (questions, answers))
    ends = accumulate(len(question) + len(answer) for question, answer in zip(asked, answered, strict=True))
    num_exchanges = max(1, sum(end <= max_tokens for end in ends))
    asked, answered = asked[:num_exchanges], answered[:num_exchanges]
    turns, dictation, given = list[Turn](), list[int](), list[int]()
    for question, answer, number in zip(asked, answered, choose([len(each) for each in answered]), strict=True):
        given += question
        if number:
            turns.append(Turn(tuple(given), number))
            given = []
        given += answer[number:]
        dictation += question + answer
    return Talk(turns, dictation)


def spread(num_tokens: int) -> Choose:
    """Whole answers, evenly spread over the recording, of about so many tokens in all."""

    def choose(lengths: Sequence[int]) -> Sequence[int]:
        every = min(len(lengths), max(1, sum(lengths) // num_tokens))
        return [length if number % every == every // 2 else 0 for number, length in enumerate(lengths)]

    return choose


def alike(num_turns: int, num_tokens: int) -> Choose:
    """So many turns of so many tokens, evenly spread over answers that have them."""

    def choose(lengths: Sequence[int]) -> Sequence[int]:
        long = [number for number, length in enumerate(lengths) if length >= num_tokens]
        chosen = {long[len(long) * turn // num_turns] for turn in range(num_turns) if long}
        return [num_tokens if number in chosen else 0 for number in range(len(lengths))]

    return choose


def quoting(tokenizer: Tokenizer, num_turns: int) -> Talk:
    """kakeya-nano's tasks of repeating a text and of small edits, by its own grammars."""
    random = Random("quoting")
    turns, given = list[Turn](), ""
    for number in range(num_turns):
        pieces = list(written((edit if number % 3 == 2 else quote)(random)))
        given += _before_answer(pieces)
        turns.append(Turn(tuple(tokenizer.encode(given).ids), _ANSWER_TOKENS))
        given = pieces[-1].text
    return Talk(turns, eos_token_ids=tokenizer.encode(_END).ids)


def prose(tokenizer: Tokenizer, seed: int, num_tokens: int) -> Talk:
    """Of a session that says by chance what it says, without an end."""
    turn = Turn(tuple(tokenizer.encode(_PROSE).ids), num_tokens)
    return Talk([turn], sampling=replace(GREEDY, temperature=1.0, seed=seed))


def _before_answer(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces[:-2])
