"""OpenAI's Responses: each one goes on from the one before by its id, and a client sends what is new."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from kakeya_bench.compare.completions import RivalFailed
from kakeya_bench.compare.texts.text_answer import TextAnswer
from kakeya_bench.compare.texts.text_api import Talk, TextApi, broke_off
from kakeya_bench.compare.texts.wording import Message
from kakeya_bench.conversation import clock

_ENDS = ("response.completed", "response.incomplete")


@dataclass(slots=True)
class ResponseAnswer(TextAnswer):
    """A stream of events.

    Attributes:
        id: of the response; "" while it is not known.
    """

    id: str = ""

    @property
    def num_appended_tokens(self) -> int | None:
        """By the usage alone: what of the conversation was not there before."""
        if self.num_prompt_tokens is None or self.num_cached_tokens is None:
            return None
        return self.num_prompt_tokens - self.num_cached_tokens

    def take(self, event: Any, moment: float) -> None:
        if event.type == "response.output_text.delta":
            self._says(event.delta, moment)
        elif event.type == "error":
            raise broke_off(event.message)
        elif event.type == "response.failed":
            raise broke_off(event.response.error.message if event.response.error else "it does not say why")
        elif event.type in _ENDS:
            self._ended(event.response)

    def _ended(self, response: Any) -> None:
        if not response.id:
            raise RivalFailed("its response has no id to go on from")
        self.id, self.is_ended = response.id, True
        if response.usage is not None:
            self.num_prompt_tokens, self.num_tokens = response.usage.input_tokens, response.usage.output_tokens
            details = response.usage.input_tokens_details
            self.num_cached_tokens = details and details.cached_tokens


class Responses(TextApi):
    """POST /responses. They are stored."""

    def talk(self) -> Talk:
        return _Chain(self)

    async def ask(self, messages: Sequence[Message], max_tokens: int, behind: str | None = None) -> ResponseAnswer:
        """The answer to the last of the messages, behind a response or at the beginning.

        Raises RivalFailed, as `TextApi` does.
        """
        usual = {
            "max_output_tokens": max_tokens,
            "temperature": 0,
            "store": True,
            "previous_response_id": behind,
            "ignore_eos": True,
        }
        answer, create = ResponseAnswer(clock.now()), cast(Any, self._client.responses.create)
        return await self._answered(answer, create, usual, input=messages)


class _Chain(Talk):
    """Of responses."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._last: str | None = None
        self._unsent: list[Message] = []

    def say(self, *messages: Message) -> None:
        self._unsent += messages

    async def _asked(self, max_tokens: int) -> TextAnswer:
        return await self._responses.ask(self._unsent, max_tokens, self._last)

    def _heard(self, answer: TextAnswer) -> None:
        self._last = cast(ResponseAnswer, answer).id
        self._unsent = []
