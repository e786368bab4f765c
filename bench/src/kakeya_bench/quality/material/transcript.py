"""A dialogue as it is written, token by token, before any model sees it."""

from collections.abc import Collection
from random import Random

from kakeya_bench.quality.material import fillers
from kakeya_bench.quality.material.chat_template import ChatTemplate
from kakeya_bench.quality.material.facts import Exchange
from kakeya_bench.quality.material.script import Tokens

_NUM_CANDIDATES = 12  # fillers to choose the longest from that still fits
_NEAR = 160  # tokens; closer to the end than this, fillers are chosen by their length


class Transcript:
    """Tokens so far, and which of them are the assistant's.

    Args:
        forbidden: values that stand in no filler.

    Attributes:
        tokens: all of them.
        is_answer: beside each token, whether the assistant wrote it, the end of an answer included.
        num_system_tokens: what stands before the first user's text.
    """

    def __init__(
        self, template: ChatTemplate, random: Random, *, forbidden: Collection[str] = (), system: str | None = None
    ) -> None:
        self._template = template
        self._random = random
        self._forbidden = forbidden
        self._is_first = True
        self.tokens: list[int] = []
        self.is_answer: list[bool] = []
        self._add(template.system(system), is_answer=False)
        self.num_system_tokens = len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def question(self, text: str) -> Tokens:
        """What would follow if the user said this; nothing is written."""
        return self._template.first_question(text) if self._is_first else self._template.question(text)

    def say(self, exchange: Exchange) -> None:
        """Writes an exchange."""
        self._add(self.question(exchange.question), is_answer=False)
        self._add(self._template.answer(exchange.answer), is_answer=True)
        self._is_first = False

    def fill(self, until: int) -> None:
        """Writes fillers: up to so many tokens in all, and as close to them as they fit."""
        while (gap := until - len(self)) > 0:
            drawn = [fillers.draw(self._random, self._forbidden) for _ in range(_NUM_CANDIDATES if gap < _NEAR else 1)]
            fitting = [exchange for exchange in drawn if self._length(exchange) <= gap]
            if not fitting:
                return
            self.say(max(fitting, key=self._length))

    def _length(self, exchange: Exchange) -> int:
        return len(self.question(exchange.question)) + len(self._template.answer(exchange.answer))

    def _add(self, tokens: Tokens, *, is_answer: bool) -> None:
        self.tokens += tokens
        self.is_answer += [is_answer] * len(tokens)
