"""The runtime as a player: one session, which is sent what is new."""

import time
from collections.abc import Sequence
from contextlib import suppress

from kakeya import AsyncClient, AsyncSession, GenerateResult, KakeyaError
from kakeya.bench import transcript
from kakeya.bench.compare.history import History
from kakeya.bench.compare.options import Options
from kakeya.bench.compare.played_turn import PlayedTurn
from kakeya.bench.compare.rival import RUNTIME
from kakeya.bench.compare.said import Said
from kakeya.bench.workers import Workers


class RuntimePlayer:
    """Plays every turn.

    Attributes:
        answer: to the turn that was played last; None where it failed.
    """

    name = RUNTIME

    def __init__(self, client: AsyncClient, options: Options, workers: Workers) -> None:
        self.answer: list[int] | None = None
        self._client = client
        self._options = options
        self._workers = workers
        self._history = History()
        self._session: AsyncSession | None = None

    async def open(self) -> AsyncSession:
        """Opens the session. Raises KakeyaError."""
        options = self._options
        self._session = await self._client.create_session(
            label="kakeya bench", model=options.model, sink=options.sink, window=options.window,
            timeout_seconds=options.timeout_seconds,
        )  # fmt: skip
        return self._session

    async def close(self) -> None:
        """Closes the session."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(KakeyaError):  # it may be lost; else it expires
                await session.close()

    async def warm_up(self, new_tokens: Sequence[int]) -> None:
        """A turn in a session of its own. Raises KakeyaError."""
        options = self._options
        async with await self._client.create_session(
            label="kakeya bench, warm-up", model=options.model, sink=options.sink, window=options.window,
            timeout_seconds=options.timeout_seconds,
        ) as session:  # fmt: skip
            await session.turn(new_tokens, max_tokens=options.max_tokens, timeout_seconds=options.timeout_seconds).all()

    def plays(self, index: int) -> bool:
        """Whether it plays that turn."""
        return True

    def hear(self, said: Said) -> None:
        """A turn begins."""
        self._history.hear(said.new_tokens, self._options.max_tokens)
        self.answer = None

    async def play(self, said: Said, place: int, start: float) -> PlayedTurn:
        """The turn. `start` is when the first one began, by time.perf_counter."""
        began = time.perf_counter()
        try:
            session = self._session or await self._reopened(said)
            return await self._played(session, said, place, start)
        except KakeyaError as error:
            await self.close()
            return PlayedTurn(
                player=self.name,
                index=said.index,
                place=place,
                started_seconds=began - start,
                history_length=self._history.length,
                num_sent_tokens=len(said.new_tokens),
                error=f"{type(error).__name__}: {error}",
            )

    def settle(self, said: Said) -> None:
        """The turn is over."""
        self._history.say(self.answer or said.stand_in)

    async def rss_bytes(self) -> int | None:
        """Of the session's worker, as its router tells it; None where it does not. Raises KakeyaError."""
        session = self._session or await self.open()
        status = await self._workers.find((await session.info()).worker)
        return status.rss_bytes or None if status else None

    async def _played(self, session: AsyncSession, said: Said, place: int, start: float) -> PlayedTurn:
        options = self._options
        answer: list[int] = []
        first: float | None = None
        began = time.perf_counter()
        generation = session.turn(
            said.new_tokens, max_tokens=options.max_tokens, timeout_seconds=options.timeout_seconds
        )
        async with generation:
            async for token_id in generation:
                first = first or time.perf_counter()
                answer.append(token_id)
        total_seconds = time.perf_counter() - began
        done = generation.done
        assert isinstance(done, GenerateResult) and first is not None  # noqa: S101, PT018  # else it had raised
        rss_bytes = await self.rss_bytes()
        self.answer = answer
        return PlayedTurn(
            player=self.name,
            index=said.index,
            place=place,
            started_seconds=began - start,
            history_length=done.history_length,
            num_sent_tokens=len(said.new_tokens),
            num_tokens_out=len(answer),
            time_to_first_token_seconds=first - began,
            total_seconds=total_seconds,
            kv_live_bytes=done.kv_live_bytes,
            rss_bytes=rss_bytes,
        )

    async def _reopened(self, said: Said) -> AsyncSession:
        """Another session that is where the lost one was, which is not measured."""
        session = await self.open()
        before = self._history.tokens[: -len(said.new_tokens)]
        await transcript.replay(session, before, timeout_seconds=self._options.timeout_seconds)
        return session
