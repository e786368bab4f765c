"""An answer as its client is told it: tokens into pieces of text."""

from collections.abc import AsyncGenerator, Callable

from kakeya import AsyncGeneration, StopReason
from kakeya_http_shim.choices.ask import Ask
from kakeya_http_shim.text.answer_text import AnswerText, Delta
from kakeya_http_shim.text.reasoning import ReasoningSplit


class Telling:
    """Tells one answer.

    Args:
        splits_reasoning: whether thoughts are told apart where a model has them.
        offset: characters before the answer that offsets count, too.

    Attributes:
        token_ids: that have come.
    """

    def __init__(self, ask: Ask, *, splits_reasoning: bool, offset: int = 0) -> None:
        thinking = ask.model.tokenizer.thinking(ask.prompt) if splits_reasoning else "not"
        self._split = thinking != "not", thinking == "inside"
        self._has_details = ask.asks_for_logprobs
        self._text = AnswerText(
            ask.model.tokenizer,
            ask.stop_texts,
            splits_reasoning=thinking != "not",
            begins_in_thought=thinking == "inside",
            min_tokens=ask.min_tokens,
            stop_token_ids=ask.stop_token_ids,
            offset=offset,
            tells_end=ask.echoes,  # scores of a prompt are counted, one entry for each token
        )
        self.token_ids: list[int] = []
        self._contents: list[str] = []
        self._reasonings: list[str] = []

    @property
    def content(self) -> str:
        """That was told."""
        return "".join(self._contents)

    @property
    def reasoning(self) -> str:
        """Likewise."""
        return "".join(self._reasonings)

    @property
    def is_stopped(self) -> bool:
        """A stop text ended it."""
        return self._text.is_stopped

    def split(self) -> ReasoningSplit:
        """What tells its thoughts apart, from the beginning."""
        return ReasoningSplit(*self._split)

    async def pieces(
        self, generation: AsyncGeneration, at_first: Callable[[], object] = lambda: None
    ) -> AsyncGenerator[Delta, None]:
        """The answer, up to its end or a stop text; then the generation is left. Raises KakeyaError.

        Args:
            at_first: is called when the first token is there.
        """
        async with generation:
            while not self.is_stopped and (token_id := await generation.next_token()) is not None:
                if not self.token_ids:
                    at_first()
                self.token_ids.append(token_id)
                detail = generation.details.pop() if self._has_details else None
                if piece := self._text.push(token_id, detail):
                    yield self._noted(piece)
        if piece := self._text.finish(at_stop_token=_is_at_stop_token(generation)):
            yield self._noted(piece)

    def _noted(self, piece: Delta) -> Delta:
        self._contents.append(piece.content)
        self._reasonings.append(piece.reasoning)
        return piece


def _is_at_stop_token(generation: AsyncGeneration) -> bool:
    return generation.done is not None and generation.done.stop_reason is StopReason.STOP_SEQUENCE
