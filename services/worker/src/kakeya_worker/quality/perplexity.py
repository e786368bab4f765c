"""Perplexity by position: how surprised a model is by a text, inside the window and past the wrap.

The token at history index p + 1 is predicted from position p: -log of its probability given tokens 0..p under the law.
Perplexity is exp of the mean over positions (and texts). Position p lies inside where p < S + W: it sees everything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.quality import facts
from kakeya_worker.quality.chat_template import ChatTemplate, Tokens
from kakeya_worker.quality.configuration import Configuration
from kakeya_worker.quality.facts import Fact
from kakeya_worker.quality.failure import CannotMeasure
from kakeya_worker.quality.script import Feed, Logits, Script
from kakeya_worker.quality.transcript import Transcript

Losses = NDArray[np.float64]  # nats, by the position that predicts; [positions]
Flags = NDArray[np.bool_]
NUM_INTERVALS = 18  # of a curve over the whole text
_MIN_TEXT_TOKENS = 32


@dataclass(frozen=True)
class Text:
    """A text to be predicted.

    Attributes:
        tokens: all of them.
        is_answer: beside each, whether the assistant wrote it.
    """

    tokens: Tokens
    is_answer: tuple[bool, ...]


@dataclass(frozen=True)
class Perplexity:
    """Over the positions start..stop-1 of all texts.

    Attributes:
        num_tokens: predicted there.
        value: over all of them; None where there are none.
        num_answer_tokens: of them, those that the assistant wrote.
        of_answers: over those.
    """

    start: int
    stop: int
    num_tokens: int
    value: float | None
    num_answer_tokens: int
    of_answers: float | None


@dataclass(frozen=True)
class PerplexityByPosition:
    """Perplexity in one configuration.

    Attributes:
        buckets: inside, and then 1 to 2 times S + W, 2 to 4 times, ...
        full_attention: over the same positions with nothing forgotten; None where the model has not that many
            positions.
        past_the_wrap: all positions from S + W on.
        whole: all positions.
        curve: intervals of the whole text, the same in all configurations, as far as it was read there.
    """

    configuration: Configuration
    buckets: tuple[Perplexity, ...]
    full_attention: tuple[Perplexity | None, ...]
    past_the_wrap: Perplexity
    whole: Perplexity
    curve: tuple[Perplexity, ...]


def write(template: ChatTemplate, random: Random, length: int) -> Text:
    """An endless dialogue, cut: fillers, facts told, and questions for facts told before."""
    known: list[Fact] = []
    transcript = Transcript(template, random)
    while len(transcript) < length:
        habit = random.random()
        if habit < 0.15 and len(known) < 12:
            known.append(facts.draw(random, known))
            transcript.say(known[-1].telling)
        elif habit < 0.4 and known:
            fact = random.choice(known)
            transcript.say(fact.asking(random))
        else:
            transcript.filler()
    return Text(tuple(transcript.tokens[:length]), tuple(transcript.is_answer[:length]))


def cut(tokens: Tokens, length: int, num_texts: int) -> list[Text]:
    """At most so many texts of that length out of a long one; a shorter one is a text by itself.

    Raises:
        CannotMeasure: there is hardly any text.
    """
    if len(tokens) < _MIN_TEXT_TOKENS:
        raise CannotMeasure(f"the text has {len(tokens)} tokens; at least {_MIN_TEXT_TOKENS} are needed")
    length = min(length, len(tokens))
    starts = range(0, len(tokens) - length + 1, length)[:num_texts]
    return [Text(tokens[start : start + length], (False,) * length) for start in starts]


def script(text: Text, num_positions: int) -> Script[Losses]:
    """The losses at the first positions of a text."""
    losses = []
    for token, following in zip(text.tokens[:num_positions], text.tokens[1 : num_positions + 1], strict=False):
        logits = yield Feed((token,))
        losses.append(_loss(logits, following))
    return np.array(losses)


def _loss(logits: Logits, token: int) -> float:
    wide = logits.astype(np.float64) - logits.max()
    return float(np.log(np.exp(wide).sum()) - wide[token])


def bounds(capacity: int, num_positions: int) -> Iterator[tuple[int, int]]:
    """[0, S+W), then doubling: [S+W, 2(S+W)), [2(S+W), 4(S+W)), ..., cut at the number of positions."""
    start, stop = 0, capacity
    while start < num_positions:
        yield start, min(stop, num_positions)
        start, stop = stop, 2 * stop


def intervals(num_positions: int) -> list[tuple[int, int]]:
    """Of equal length, but for rounding."""
    edges = [round(index * num_positions / NUM_INTERVALS) for index in range(NUM_INTERVALS + 1)]
    return [(start, stop) for start, stop in pairwise(edges) if start < stop]


def between(texts: Sequence[Text], losses: Sequence[Losses], start: int, stop: int) -> Perplexity:
    """Perplexity over positions start..stop-1."""
    taken = [of_text[start:stop] for of_text in losses]
    is_answer: list[Flags] = [
        np.array(text.is_answer[start + 1 : start + 1 + len(some)], dtype=np.bool_)
        for text, some in zip(texts, taken, strict=True)
    ]
    everything, answers = np.concatenate(taken), np.concatenate(is_answer)
    of_answers = everything[answers]
    return Perplexity(start, stop, len(everything), _exp_mean(everything), len(of_answers), _exp_mean(of_answers))


def _exp_mean(losses: Losses) -> float | None:
    return float(np.exp(losses.mean())) if len(losses) else None


def summarize(
    configuration: Configuration, texts: Sequence[Text], losses: Sequence[Losses], reference: Sequence[Losses]
) -> PerplexityByPosition:
    """Means by position, beside those of the reference: full attention, as far as the model's positions go."""
    num_positions, num_known = max(map(len, losses)), max(map(len, reference))
    buckets = list(bounds(configuration.capacity, num_positions))
    return PerplexityByPosition(
        configuration,
        buckets=tuple(between(texts, losses, *bucket) for bucket in buckets),
        full_attention=tuple(
            between(texts, reference, start, stop) if stop <= num_known else None for start, stop in buckets
        ),
        past_the_wrap=between(texts, losses, min(configuration.capacity, num_positions), num_positions),
        whole=between(texts, losses, 0, num_positions),
        curve=curve(texts, losses),
    )


def curve(texts: Sequence[Text], losses: Sequence[Losses]) -> tuple[Perplexity, ...]:
    """By intervals of the whole text, as far as there are losses."""
    num_positions = max(len(text.tokens) for text in texts) - 1
    known = [interval for interval in intervals(num_positions) if interval[1] <= max(map(len, losses))]
    return tuple(between(texts, losses, *interval) for interval in known)
