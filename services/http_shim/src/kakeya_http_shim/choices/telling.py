"""An answer as its client is told it: tokens into pieces of text."""

import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from kakeya import AsyncGeneration, StopReason
from kakeya_http_shim.choices.ask import Ask
from kakeya_http_shim.text.answer_form import AnswerForm
from kakeya_http_shim.text.answer_text import AnswerText
from kakeya_http_shim.text.delta import Delta


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long an answer took.

    Attributes:
        to_first_token: from where its session was there.
        from_then_on: to its end.
    """

    to_first_token: float = 0.0
    from_then_on: float = 0.0


@dataclass(frozen=True, slots=True)
class Begun:
    """The first token is there: nothing is refused any more."""


class Telling:
    """Tells one answer.

    Args:
        splits_reasoning: whether thoughts are told apart where a model has them.
        offset: characters before the answer that offsets count, too.

    Attributes:
        form: what its text is told apart into.
        token_ids: that have come.
    """

    def __init__(self, ask: Ask, *, splits_reasoning: bool, offset: int = 0) -> None:
        thinking = ask.model.tokenizer.thinking(ask.prompt) if splits_reasoning else "not"
        self.form = AnswerForm(ask.model.tokenizer, thinking, ask.calling)
        self._has_details = ask.asks_for_logprobs
        self._text = AnswerText(
            self.form,
            ask.stop_texts,
            min_tokens=ask.min_tokens,
            stop_token_ids=ask.stop_token_ids,
            offset=offset,
            tells_end=ask.echoes,  # scores of a prompt are counted, one entry for each token
        )
        self.token_ids: list[int] = []
        self._began_at = self._first_at = time.monotonic()
        self._pieces: list[Delta] = []

    @property
    def told(self) -> Delta:
        """All that was told."""
        return Delta.joined(self._pieces)

    @property
    def num_reasoning_tokens(self) -> int:
        """Of the thoughts, up to the token that ended them."""
        return self._text.num_reasoning_tokens

    @property
    def has_calls(self) -> bool:
        """A call was told."""
        return any(piece.has_calls for piece in self._pieces)

    @property
    def seconds(self) -> Seconds:
        """Up to now."""
        return Seconds(self._first_at - self._began_at, time.monotonic() - self._first_at)

    @property
    def is_stopped(self) -> bool:
        """It was ended here: by a stop text, or since all calls were made that may be."""
        return self._text.is_stopped

    @property
    def stop_text(self) -> str | None:
        """That ended it; None: none did."""
        return self._text.stop_text

    async def pieces(
        self, generation: AsyncGeneration, at_first: Callable[[], object] = lambda: None
    ) -> AsyncGenerator[Begun | Delta, None]:
        """The answer, up to its end or where it is stopped; then the generation is left. Raises KakeyaError.

        Args:
            at_first: is called when the first token is there.
        """
        async with generation:
            while not self.is_stopped and (token_id := await generation.next_token()) is not None:
                if not self.token_ids:
                    self._first_at = time.monotonic()
                    at_first()
                    yield Begun()
                self.token_ids.append(token_id)
                detail = generation.details.pop() if self._has_details else None
                if piece := self._text.push(token_id, detail):
                    yield self._noted(piece)
        if piece := self._text.finish(at_stop_token=_is_at_stop_token(generation)):
            yield self._noted(piece)

    def _noted(self, piece: Delta) -> Delta:
        self._pieces.append(piece)
        return piece


def _is_at_stop_token(generation: AsyncGeneration) -> bool:
    return generation.done is not None and generation.done.stop_reason is StopReason.STOP_SEQUENCE
