"""One user of a runtime: what is said, the session that answers, and how long that takes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from kakeya import AppendResult, AsyncClient, AsyncSession, GenerateResult, KakeyaError
from kakeya.errors import InvariantViolated, SessionClosed, SessionNotFound, WorkerLost
from kakeya_bench.conversation import clock
from kakeya_bench.conversation.failure import describe
from kakeya_bench.conversation.prompts import Prompts
from kakeya_bench.conversation.settings import RuntimeSettings

_GONE = (SessionNotFound, SessionClosed, WorkerLost, InvariantViolated)
LONGEST_APPEND = 65_536
"""What a router takes in one append unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back to a message, as its user sees it.

    Attributes:
        arrived_seconds: when each token came, since the message was sent.
        wall_seconds: from then to the end of the generation.
    """

    token_ids: Sequence[int]
    arrived_seconds: Sequence[float]
    wall_seconds: float
    appended: AppendResult
    done: GenerateResult

    @property
    def time_to_first_token_seconds(self) -> float | None:
        """From the append; None where no token came."""
        return self.arrived_seconds[0] if self.arrived_seconds else None

    @property
    def time_per_output_token_seconds(self) -> float | None:
        """Between the first token and the last, for each after the first; None where there is none."""
        came = self.arrived_seconds
        return (came[-1] - came[0]) / (len(came) - 1) if len(came) > 1 else None


class Script(Protocol):
    """What is said, and how answers end: a `Speech`, or what stands for one."""

    @property
    def settings(self) -> RuntimeSettings:
        """Which session is asked for, and how long it may take."""
        ...

    @property
    def eos_token_ids(self) -> list[int]:
        """What ends an answer."""
        ...

    def prompts(self, conversation: int) -> Prompts:
        """What is said in one conversation, from its start. Raises NoPrompts."""
        ...


class Dialogue:
    """Speaks in one session, and in another one when it is lost.

    Args:
        conversations: which one is held in each session: who replaces a lost one says something else.
        label: of the sessions, for operators.

    Attributes:
        session: the one that is held; None before the first, and once it is lost.
    """

    def __init__(self, client: AsyncClient, said: Script, conversations: Iterator[int], *, label: str) -> None:
        self.session: AsyncSession | None = None
        self._client = client
        self._said = said
        self._conversations = conversations
        self._label = label
        self._prompts: Prompts
        self._last_token_id: int | None = None

    async def open(self) -> AsyncSession:
        """Opens a session, for a conversation that has not begun. Raises KakeyaError, NoPrompts."""
        asked = self._said.settings
        self._prompts, self._last_token_id = self._said.prompts(next(self._conversations)), None
        self.session = await self._client.create_session(
            eos_token_ids=self._said.eos_token_ids,
            label=self._label,
            model=asked.model,
            sink=asked.sink,
            window=asked.window,
            timeout_seconds=asked.timeout_s,
        )
        return self.session

    async def close(self) -> None:
        """Closes the session, if there is one. Raises KakeyaError."""
        if self.session is not None:
            await self.session.close()

    async def message(self) -> list[int]:
        """What is said next; opens another session where the last one was lost.

        Raises:
            KakeyaError: it cannot be opened.
            NoPrompts, TokenizerError
        """
        if self.session is None:
            await self.open()
        return self._prompts.next_turn(self._last_token_id)

    async def answer(self, token_ids: list[int]) -> Answer:
        """Sends a message and reads what comes back. Raises KakeyaError."""
        assert self.session is not None  # noqa: S101  # there is a message
        answer = await self._answer(self.session, token_ids)
        self._last_token_id = answer.token_ids[-1] if answer.token_ids else None
        return answer

    def forget(self, error: Exception) -> None:
        """What is not known any more once a turn has failed: how its answer ended, or even the session."""
        self._last_token_id = None
        if isinstance(error, _GONE):
            self.session = None

    async def _answer(self, session: AsyncSession, token_ids: list[int]) -> Answer:
        asked = self._said.settings
        answer: list[int] = []
        arrived_seconds: list[float] = []
        sent = clock.now()
        generation = session.turn(token_ids, max_tokens=asked.max_tokens, timeout_seconds=asked.timeout_s)
        async with generation:
            async for token_id in generation:
                arrived_seconds.append(clock.now() - sent)
                answer.append(token_id)
        done, appended = generation.done, generation.appended
        assert done is not None and appended is not None  # noqa: S101, PT018  # else it had raised
        return Answer(answer, arrived_seconds, clock.now() - sent, appended, done)


@asynccontextmanager
async def closed_in_the_end(dialogues: Sequence[Dialogue], tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Closes their sessions when the context ends, although a signal may come meanwhile.

    Args:
        tell: gets why a session cannot be closed. What was measured is not lost for that: it expires by itself.
    """

    async def close(dialogue: Dialogue) -> None:
        try:
            await dialogue.close()
        except KakeyaError as error:
            tell(describe(error))

    try:
        yield
    finally:
        await _to_its_end(asyncio.gather(*map(close, dialogues)))


async def _to_its_end(work: Awaitable[object]) -> None:
    """Does what must be done although a signal comes meanwhile; the cancellation goes on then."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({working})
    finally:
        await working


async def replay(session: AsyncSession, token_ids: Sequence[int], *, timeout_seconds: float) -> None:
    """Appends all of them, in one append where they fit. Raises KakeyaError."""
    for place in range(0, len(token_ids), LONGEST_APPEND):
        await session.append(list(token_ids[place : place + LONGEST_APPEND]), timeout_seconds=timeout_seconds)
