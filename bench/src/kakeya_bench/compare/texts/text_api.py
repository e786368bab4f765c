"""OpenAI's APIs of texts over HTTP, by the package `openai` as it is."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar, cast

import openai

from kakeya_bench.compare.completions import RivalFailed, check_length, in_one_line, saying
from kakeya_bench.compare.rival import Rival
from kakeya_bench.compare.texts.text_answer import SessionSaid, TextAnswer
from kakeya_bench.compare.texts.wording import Message
from kakeya_bench.conversation import clock

_NO_KEY = "none"  # the client insists on one
_Answer = TypeVar("_Answer", bound=TextAnswer)
Create = Callable[..., Awaitable[openai.AsyncStream[Any]]]
"""A method of the client."""


class Talk(ABC):
    """One conversation, as its client holds it."""

    @abstractmethod
    def say(self, *messages: Message) -> None:
        """They are said next; also what stands for an answer that did not come."""

    async def ask(self, max_tokens: int) -> TextAnswer:
        """The answer to what was said, which is part of the conversation from there on.

        Raises:
            RivalFailed: as of `TextApi`, or the answer has another length. It is no part of the conversation.
        """
        answer = await self._asked(max_tokens)
        check_length(answer.num_tokens, max_tokens)
        self._heard(answer)
        return answer

    @abstractmethod
    async def _asked(self, max_tokens: int) -> TextAnswer:
        """Raises RivalFailed."""

    @abstractmethod
    def _heard(self, answer: TextAnswer) -> None:
        """The answer is part of the conversation."""


class TextApi(ABC):
    """One of them, of one rival, over connections that the client keeps. To be entered.

    The client is told two things that its users may tell it: to go through no proxies, which would be measured, too,
    and to ask once.
    """

    def __init__(self, rival: Rival, timeout_seconds: float) -> None:
        self._rival = rival
        self._timeout_seconds = timeout_seconds
        self._sent_at = 0.0
        self._client = openai.AsyncOpenAI(
            base_url=rival.url,
            api_key=rival.key or _NO_KEY,
            timeout=None,  # one clock for all of an answer is enough
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(
                trust_env=False, verify=ssl.create_default_context(), event_hooks={"request": [self._sends]}
            ),
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._client.__aexit__(*raised)

    @abstractmethod
    def talk(self) -> Talk:
        """One that begins."""

    async def _answered(self, answer: _Answer, create: Create, usual: Mapping[str, Any], **said: Any) -> _Answer:
        """The answer, which has not begun.

        Args:
            usual: fields of the request; those of the rival count before them.
            said: what the method is given.

        Raises:
            RivalFailed: nobody answers, or not in time, or with an error, or with half an answer.
        """
        fields = {name: value for name, value in {**usual, **self._rival.fields}.items() if value is not None}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                stream = await create(
                    model=cast(str, self._rival.model), stream=True, extra_body=fields, **cast(Any, said)
                )
                await self._read(stream, answer)
        except TimeoutError:
            raise RivalFailed(f"no whole answer within {self._timeout_seconds:g} s") from None
        except openai.APIStatusError as error:
            raise RivalFailed(f"HTTP {error.status_code}: {saying(error.response.text)}") from error
        except openai.APIConnectionError as error:
            raise RivalFailed(_reason(error)) from error
        except openai.APIError as error:
            raise broke_off(error.message) from error
        except (ValueError, AttributeError) as error:  # the client checks no types
            raise RivalFailed(f"an event is none of its API: {in_one_line(str(error))}") from error
        return answer

    async def _read(self, stream: openai.AsyncStream[Any], answer: TextAnswer) -> None:
        answer.sent_at = self._sent_at
        async with stream:
            answer.session = SessionSaid.of(stream.response.headers.get("kakeya-session"))
            async for event in stream:
                answer.take(event, clock.now())
        if not answer.is_ended:
            raise RivalFailed("its stream ended before the answer did")
        answer.done_at = clock.now()

    async def _sends(self, _: object) -> None:
        self._sent_at = clock.now()


def broke_off(why: str) -> RivalFailed:
    """An answer that has begun has failed."""
    return RivalFailed(f"it broke off: {in_one_line(why)}")


def _reason(error: Exception) -> str:
    """The innermost one: the client says of each that it was a connection error."""
    inner = error.__cause__ or error.__context__
    return _reason(inner) if isinstance(inner, Exception) else in_one_line(f"{type(error).__name__}: {error}")
