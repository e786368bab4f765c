"""Texts whose tokens are predicted, one after the other."""

from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from kakeya_bench.quality.material import facts, fillers
from kakeya_bench.quality.material.chat_template import ChatTemplate
from kakeya_bench.quality.material.dialogue import Transcript
from kakeya_bench.quality.material.facts import Fact
from kakeya_bench.quality.material.script import Feed, Logits, Script, Tokens
from kakeya_bench.quality.settings import CannotMeasure

Losses = NDArray[np.float64]  # nats, by the position that predicts; [positions]
_MIN_TOKENS = 32


@dataclass(frozen=True)
class Text:
    """A text to be predicted.

    Attributes:
        tokens: all of them.
        is_answer: beside each, whether the assistant wrote it.
    """

    tokens: Tokens
    is_answer: tuple[bool, ...]

    def script(self, num_positions: int) -> Script[Losses]:
        """The losses at the first positions."""
        losses = []
        for token, following in zip(self.tokens[:num_positions], self.tokens[1 : num_positions + 1], strict=False):
            logits = yield Feed((token,))
            losses.append(_loss(logits, following))
        return np.array(losses)


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
            transcript.say(random.choice(known).asking(random))
        else:
            transcript.say(fillers.draw(random, ()))
    return Text(tuple(transcript.tokens[:length]), tuple(transcript.is_answer[:length]))


def cut(tokens: Tokens, length: int, num_texts: int) -> list[Text]:
    """At most so many texts of that length out of a long one; a shorter one is a text by itself.

    Raises:
        CannotMeasure: there is hardly any text.
    """
    if len(tokens) < _MIN_TOKENS:
        raise CannotMeasure(f"the text has {len(tokens)} tokens; at least {_MIN_TOKENS} are needed")
    length = min(length, len(tokens))
    starts = range(0, len(tokens) - length + 1, length)[:num_texts]
    return [Text(tokens[start : start + length], (False,) * length) for start in starts]


def _loss(logits: Logits, token: int) -> float:
    wide = logits.astype(np.float64) - logits.max()
    return float(np.log(np.exp(wide).sum()) - wide[token])
