"""OpenAI's chats over HTTP, by the package `openai` as it is."""

import asyncio
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import openai

from kakeya_bench.compare.completions import RivalFailed, in_one_line, saying
from kakeya_bench.compare.rival import Rival
from kakeya_bench.compare.wording import Message
from kakeya_bench.conversation import clock

_SAID = re.compile(
    r"(?P<state>[\w-]+);( id=[^;]*;)? appended=(?P<appended>\d+); reused=(?P<reused>\d+); why=(?P<why>\S+)"
)
_NO_KEY = "none"  # the client insists on one


@dataclass(frozen=True, slots=True)
class SessionSaid:
    """What a server says of the live session that it answered from.

    Attributes:
        state: continued, forked or new.
        why: it is that.
        num_appended: tokens that the request has added to it before the answer.
        num_reused: tokens that were there before.
    """

    state: str
    why: str
    num_appended: int
    num_reused: int

    @classmethod
    def of(cls, header: str | None) -> "SessionSaid | None":
        """What stands in `Kakeya-Session`; None where there is none. Raises RivalFailed where it has another form."""
        if header is None:
            return None
        found = _SAID.fullmatch(header)
        if found is None:
            raise RivalFailed(f"what it says of its session is not understood: {in_one_line(header)}")
        return cls(found["state"], found["why"], int(found["appended"]), int(found["reused"]))


@dataclass(slots=True)
class ChatAnswer:
    """Grows event by event; moments are in seconds of `clock.now`.

    Attributes:
        asked_at: when the client was asked to send the messages.
        sent_at: when it had made a request of them, and began to send that.
        first_at: when the first text came; None where none did.
        done_at: when it was whole; 0 while it is not.
        text: all of it.
        session: what the server says of it; None where it says nothing.
        num_prompt_tokens, num_tokens, num_cached_tokens: of the whole conversation before the answer, of the answer,
            and those that needed no prefill, as the server counts them; None where it does not.
    """

    asked_at: float
    sent_at: float = 0.0
    first_at: float | None = None
    done_at: float = 0.0
    text: str = ""
    session: SessionSaid | None = None
    num_prompt_tokens: int | None = None
    num_tokens: int | None = None
    num_cached_tokens: int | None = None
    is_ended: bool = False

    def take(self, chunk: Any, moment: float) -> None:
        """An event, as the client has read it, and when it came."""
        for choice in chunk.choices or ():
            if choice.delta and choice.delta.content:
                self.first_at = moment if self.first_at is None else self.first_at
                self.text += choice.delta.content
            self.is_ended = self.is_ended or choice.finish_reason is not None
        if chunk.usage is not None:
            self.num_prompt_tokens, self.num_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
            details = chunk.usage.prompt_tokens_details
            self.num_cached_tokens = details and details.cached_tokens


class Chats:
    """One rival's chats, over connections that the client keeps. To be entered.

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

    async def ask(self, messages: Sequence[Message], max_tokens: int) -> ChatAnswer:
        """The answer to the last of the messages.

        Raises:
            RivalFailed: nobody answers, or not in time, or with an error, or with half an answer.
        """
        usual = {
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        fields = {name: value for name, value in {**usual, **self._rival.fields}.items() if value is not None}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._asked(messages, fields)
        except TimeoutError:
            raise RivalFailed(f"no whole answer within {self._timeout_seconds:g} s") from None
        except openai.APIStatusError as error:
            raise RivalFailed(f"HTTP {error.status_code}: {saying(error.response.text)}") from error
        except openai.APIConnectionError as error:
            raise RivalFailed(_reason(error)) from error
        except openai.APIError as error:
            raise RivalFailed(f"it broke off: {in_one_line(error.message)}") from error
        except ValueError as error:
            raise RivalFailed(f"an event is none of a chat: {in_one_line(str(error))}") from error

    async def _asked(self, messages: Sequence[Message], fields: dict[str, Any]) -> ChatAnswer:
        answer = ChatAnswer(asked_at=clock.now())
        stream = await self._client.chat.completions.create(
            model=cast(str, self._rival.model), messages=cast(Any, messages), stream=True, extra_body=fields
        )
        answer.sent_at = self._sent_at
        async with stream:
            answer.session = SessionSaid.of(stream.response.headers.get("kakeya-session"))
            async for chunk in stream:
                answer.take(chunk, clock.now())
        if not answer.is_ended:
            raise RivalFailed("its stream ended before the answer did")
        answer.done_at = clock.now()
        return answer

    async def _sends(self, _: object) -> None:
        self._sent_at = clock.now()


def _reason(error: Exception) -> str:
    """The innermost one: the client says of each that it was a connection error."""
    inner = error.__cause__ or error.__context__
    return _reason(inner) if isinstance(inner, Exception) else in_one_line(f"{type(error).__name__}: {error}")
