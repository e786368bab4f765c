"""OpenAI's chats: a client that knows no sessions sends all messages each turn, its answers as it got them."""

from collections.abc import Sequence
from typing import Any, cast

from kakeya_bench.compare.texts.text_answer import TextAnswer
from kakeya_bench.compare.texts.text_api import Talk, TextApi
from kakeya_bench.compare.texts.wording import Message, answered
from kakeya_bench.conversation import clock


class ChatAnswer(TextAnswer):
    """A stream of chunks."""

    @property
    def num_appended_tokens(self) -> int | None:
        return self.session.num_appended if self.session else None

    def take(self, event: Any, moment: float) -> None:
        for choice in event.choices or ():
            self._says(choice.delta and choice.delta.content, moment)
            self.is_ended = self.is_ended or choice.finish_reason is not None
        if event.usage is not None:
            self.num_prompt_tokens, self.num_tokens = event.usage.prompt_tokens, event.usage.completion_tokens
            details = event.usage.prompt_tokens_details
            self.num_cached_tokens = details and details.cached_tokens


class Chats(TextApi):
    """POST /chat/completions."""

    def talk(self) -> Talk:
        return _Chat(self)

    async def ask(self, messages: Sequence[Message], max_tokens: int) -> ChatAnswer:
        """The answer to the last of the messages. Raises RivalFailed, as `TextApi` does."""
        usual = {
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        answer, create = ChatAnswer(clock.now()), cast(Any, self._client.chat.completions.create)
        return await self._answered(answer, create, usual, messages=messages)


class _Chat(Talk):
    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self._messages: list[Message] = []

    def say(self, *messages: Message) -> None:
        self._messages += messages

    async def _asked(self, max_tokens: int) -> TextAnswer:
        return await self._chats.ask(self._messages, max_tokens)

    def _heard(self, answer: TextAnswer) -> None:
        self._messages.append(answered(answer.text))
