"""From events to the answer of a request, whole or streamed."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

from kakeya import KakeyaError
from kakeya_http_shim.answers.inference_span import InferenceSpan, inference_span
from kakeya_http_shim.answers.question import Question
from kakeya_http_shim.answers.reply import Reply
from kakeya_http_shim.answers.writer import Heading, Whole
from kakeya_http_shim.choices.choice import ChoiceMaker, Ended, Event
from kakeya_http_shim.choices.opened import Opened, Spent
from kakeya_http_shim.choices.several import all_choices
from kakeya_http_shim.choices.telling import Begun
from kakeya_http_shim.conversations.said import SESSION_HEADER
from kakeya_http_shim.metrics import Metrics
from kakeya_http_shim.problems import ApiError, from_kakeya, internal
from kakeya_http_shim.text.delta import Delta

_MAX_SHORT_TOKENS = 500
"""Of answers that are written on the event loop."""


@dataclass(frozen=True)
class Answering:
    """Answers questions.

    Attributes:
        comment_seconds: a stream that is silent for so long says a sign of life.
    """

    maker: ChoiceMaker
    metrics: Metrics
    comment_seconds: float

    async def answer(self, question: Question, reply: Reply) -> None:
        """Raises KakeyaError, ApiError."""
        work = self._answer(question, reply)
        await (work if question.keep is None else question.keep.answered(work))

    async def _answer(self, question: Question, reply: Reply) -> None:
        with inference_span(question) as span, _given_up(question):
            async with (
                aclosing(all_choices(self.maker, question.asks, question.client)) as events,
                aclosing(self._timed(events, reply, span)) as timed,
            ):
                if question.streams:
                    await _streamed(question, timed, reply, self.comment_seconds)
                else:
                    await _whole(question, timed, reply)

    async def _timed(
        self, events: AsyncGenerator[tuple[int, Event], None], reply: Reply, span: InferenceSpan
    ) -> AsyncGenerator[tuple[int, Event], None]:
        began_at = time.monotonic()
        first_at: dict[int, float] = {}
        async for index, event in events:
            now = time.monotonic()
            span.hears(index, event)
            if isinstance(event, Opened) and event.said is not None:
                reply.headers.setdefault(SESSION_HEADER, event.said.header)
                if index == 0:  # the others are forks of its session
                    self.metrics.count_session(event.said.state, event.said.num_appended, event.said.num_reused)
                    reply.facts["session_id"] = event.said.session_id
            if not isinstance(event, Opened) and index not in first_at:
                first_at[index] = now
                self.metrics.time_to_first_token.observe(now - began_at)
            if isinstance(event, Ended):
                self._count(event, now - first_at[index], reply.facts)
            yield index, event

    def _count(self, ended: Ended, seconds: float, facts: dict[str, str | int]) -> None:
        """Of an answer that took so long from its first token on."""
        spent = ended.spent
        for name, number in (("prompt_tokens", spent.num_prompt_tokens), ("completion_tokens", spent.num_tokens)):
            facts[name] = int(facts.get(name, 0)) + number
        self.metrics.prompt_tokens.inc(spent.num_prompt_tokens)
        self.metrics.completion_tokens.inc(spent.num_tokens)
        if spent.num_tokens > 1:
            self.metrics.time_per_output_token.observe(seconds / (spent.num_tokens - 1))


async def _whole(question: Question, events: AsyncGenerator[tuple[int, Event], None], reply: Reply) -> None:
    pieces: list[list[Delta]] = [[] for _ in question.asks]
    ended: dict[int, Ended] = {}
    fingerprint = ""
    async for index, event in events:
        match event:
            case Opened():
                fingerprint = fingerprint or event.fingerprint
            case Delta():
                pieces[index].append(event)
            case Ended():
                ended[index] = event
    wholes = [Whole(Delta.joined(pieces[index]), ended[index]) for index in range(len(pieces))]
    make = partial(question.writer.whole, _heading(question, fingerprint), wholes)
    # Thousands of tokens would stop the event loop, and a thread takes longer than a few words.
    told = make() if _is_short(wholes) else await asyncio.to_thread(make)
    await reply.whole(await question.keep.end(told) if question.keep else told)


def _is_short(wholes: Sequence[Whole]) -> bool:
    num_tokens = sum(whole.delta.num_tokens for whole in wholes)
    return num_tokens <= _MAX_SHORT_TOKENS and not any(whole.delta.likelihoods for whole in wholes)


async def _streamed(
    question: Question, events: AsyncGenerator[tuple[int, Event], None], reply: Reply, comment_seconds: float
) -> None:
    heading = _heading(question, "")
    opened: dict[int, Opened] = {}
    begun: set[int] = set()
    ended: dict[int, Ended] = {}
    stream = _Stream(reply, question)
    async with _signs_of_life(stream, comment_seconds) as begin_signs:
        async for index, event in events:
            if isinstance(event, Opened):
                opened[index] = event
                heading = heading if heading.system_fingerprint else _heading(question, event.fingerprint)
                stream.opens(heading, event)
                if question.keep is not None:
                    question.keep.begin(event)
                begin_signs.set()
                continue
            if isinstance(event, Begun):
                await stream.begin()
                continue
            if len(question.asks) > 1 and not begun:
                begun.update(range(len(question.asks)))
                await _begin_in_order(question, heading, stream)
            spent = _spent(event, opened[index]) if question.tells_usage else None
            is_first = index not in begun
            if isinstance(event, Delta):
                told = question.writer.pieces(heading, index, event, is_first=is_first, spent=spent)
            else:
                ended[index] = event
                end = question.writer.end(heading, index, event, is_first=is_first, spent=spent)
                told = [await question.keep.end(end) if question.keep else end]
            begun.add(index)
            for data in told:
                await stream.say(data)
    if question.includes_usage:
        in_order = [ended[index].spent for index in range(len(ended))]
        await stream.say(question.writer.usage(heading, in_order))
    await reply.stream(question.writer.done(), is_last=True)


@contextmanager
def _given_up(question: Question) -> Iterator[None]:
    """Where an answer has no end, that is kept of it."""
    try:
        yield
    except BaseException as error:
        if question.keep is not None:
            question.keep.give_up(_failure(error))
        raise


def _failure(error: BaseException) -> ApiError | None:
    """None: nobody wants the answer any more."""
    match error:
        case ApiError():
            return error
        case KakeyaError():
            return from_kakeya(error)
        case Exception():
            return internal()
    return None


class _Stream:
    """A stream that says what it begins with before all else.

    Attributes:
        reply: that it is told in.
    """

    def __init__(self, reply: Reply, question: Question) -> None:
        self.reply = reply
        self._writer = question.writer
        self._keep = question.keep
        self._beginning = b""

    def opens(self, heading: Heading, opened: Opened) -> None:
        """Its session is there; of several, the first counts."""
        if not self.reply.is_begun:
            self._beginning = self._beginning or self._writer.begin(heading, opened)

    async def begin(self) -> None:
        """Its client reads the status and the headers while the first event is written."""
        if not self.reply.is_begun:
            await self.say(b"")

    async def say(self, data: bytes) -> None:
        """Events, framed."""
        if self._beginning and self._keep is not None:
            await self._keep.has_begun()  # a client that knows of it can ask for it
        data, self._beginning = self._beginning + data, b""
        await self.reply.stream(data)

    async def live(self) -> None:
        """A sign that it does."""
        await self.say(self._writer.sign_of_life)


def _spent(event: Delta | Ended, opened: Opened) -> Spent:
    return opened.spent(event.num_tokens) if isinstance(event, Delta) else event.spent


async def _begin_in_order(question: Question, heading: Heading, stream: _Stream) -> None:
    """An empty piece of each answer: what puts streams together in OpenAI's own client counts on that order."""
    for index in range(len(question.asks)):
        for data in question.writer.pieces(heading, index, Delta(), is_first=True):
            await stream.say(data)


@asynccontextmanager
async def _signs_of_life(stream: _Stream, comment_seconds: float) -> AsyncIterator[asyncio.Event]:
    """Says signs of life in every silence once the event that this yields is set.

    Until then, while the request waits for a session, a refusal can still have a status of its own.
    """
    begin = asyncio.Event()
    pulse = asyncio.create_task(_pulse(stream, comment_seconds, begin))
    try:
        yield begin
    finally:
        pulse.cancel()
        await asyncio.gather(pulse, return_exceptions=True)


async def _pulse(stream: _Stream, comment_seconds: float, begin: asyncio.Event) -> None:
    await begin.wait()
    await asyncio.sleep(comment_seconds)
    while True:
        silent_seconds = stream.reply.silent_seconds if stream.reply.is_begun else comment_seconds
        if silent_seconds >= comment_seconds:
            await stream.live()
            silent_seconds = 0.0
        await asyncio.sleep(comment_seconds - silent_seconds)


def _heading(question: Question, fingerprint: str) -> Heading:
    model = question.asks[0].model.name
    return Heading(question.id, question.created, model, f"fp_{fingerprint[:16]}" if fingerprint else "")
