"""One session of a run, turn after turn."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import count

from kakeya import AsyncClient, AsyncSession, GenerateResult, KakeyaError
from kakeya.bench import transcript
from kakeya.bench.prompts import Prompts
from kakeya.bench.session.options import Options
from kakeya.bench.turn import Turn
from kakeya.bench.workers import Workers
from kakeya.errors import InvariantViolated, SessionClosed, SessionNotFound, WorkerLost

ERROR_PAUSE_SECONDS = 1.0
MAX_ERRORS_IN_A_ROW = 10
NUM_EXACT_TOKENS = 32
_GONE = (SessionNotFound, SessionClosed, WorkerLost, InvariantViolated)


class Player:
    """Plays the turns of one session, of another one when it is lost.

    Args:
        number: which of the run's sessions.
        eos_token_ids: what ends an answer.
        make_prompts: what is said, from the start, to each new session.

    Attributes:
        has_given_up: too many turns failed, one after the other.
    """

    def __init__(
        self,
        number: int,
        client: AsyncClient,
        options: Options,
        workers: Workers,
        *,
        eos_token_ids: Sequence[int],
        make_prompts: Callable[[], Prompts],
    ) -> None:
        self.has_given_up = False
        self._number = number
        self._client = client
        self._options = options
        self._workers = workers
        self._eos_token_ids = eos_token_ids
        self._make_prompts = make_prompts
        self._session: AsyncSession | None = None
        self._prompts = make_prompts()
        self._last_token_id: int | None = None
        self._transcript: list[int] | None = []  # None once it is not known

    async def open(self) -> AsyncSession:
        """Opens the session. Raises KakeyaError."""
        asked = self._options.conversation
        self._session = await self._client.create_session(
            eos_token_ids=self._eos_token_ids, label="kakeya bench", model=asked.model, sink=asked.sink,
            window=asked.window, timeout_seconds=asked.timeout_seconds,
        )  # fmt: skip
        return self._session

    async def close(self) -> None:
        """Closes the session. Raises KakeyaError."""
        if self._session is not None:
            await self._session.close()

    async def play(self, start: float, on_turn: Callable[[Turn], None]) -> None:
        """All turns.

        Args:
            start: when the run's first one was due, by time.perf_counter.
            on_turn: gets each turn when it is over.
        """
        num_errors = 0
        options = self._options
        for index in count(1):
            due = start + (index - 1 + self._number / options.num_sessions) * options.turn_spacing_seconds
            if options.num_turns is not None and index > options.num_turns:
                return
            if options.duration_seconds is not None and (
                max(due, time.perf_counter()) >= start + options.duration_seconds
            ):
                return
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            turn = await self._turn(index, start)
            on_turn(turn)
            num_errors = num_errors + 1 if turn.error else 0
            if num_errors == MAX_ERRORS_IN_A_ROW:
                self.has_given_up = True
                return
            if turn.error:
                await asyncio.sleep(ERROR_PAUSE_SECONDS)

    async def next_tokens(self) -> tuple[list[int], list[int]]:
        """What the session generates next, and what one does that is given its transcript; both are closed then.

        Raises:
            KakeyaError
            LookupError: the transcript is not known, since a turn failed.
        """
        session, said = self._session, self._transcript
        if session is None or not said:
            raise LookupError("a turn failed, or none was played: the transcript is not known")
        played = await session.generate(max_tokens=NUM_EXACT_TOKENS).all()
        await session.close()
        async with await self._client.create_session(
            eos_token_ids=self._eos_token_ids, label="kakeya bench, replay", model=session.model, sink=session.sink,
            window=session.window, fingerprint=session.fingerprint or None,
            timeout_seconds=self._options.conversation.timeout_seconds,
        ) as other:  # fmt: skip
            await transcript.replay(other, said, timeout_seconds=self._options.conversation.timeout_seconds)
            return played, await other.generate(max_tokens=NUM_EXACT_TOKENS).all()

    async def _turn(self, index: int, start: float) -> Turn:
        began = time.perf_counter()
        token_ids: list[int] = []
        try:
            session = self._session or await self._reopened()
            token_ids = self._prompts.next_turn(self._last_token_id)
            began = time.perf_counter()  # another session and the wording of a message are none of the turn's time
            return await self._played(session, index, token_ids, start, began)
        except KakeyaError as error:
            self._forget(error)
            return Turn(
                session=self._number,
                index=index,
                started_seconds=began - start,
                wall_seconds=time.perf_counter() - began,
                capacity=0,
                num_new_tokens=len(token_ids),
                error=f"{type(error).__name__}: {error}",
            )

    async def _played(
        self, session: AsyncSession, index: int, token_ids: list[int], start: float, began: float
    ) -> Turn:
        asked = self._options.conversation
        answer: list[int] = []
        first: float | None = None
        generation = session.turn(token_ids, max_tokens=asked.max_tokens, timeout_seconds=asked.timeout_seconds)
        async with generation:
            async for token_id in generation:
                first = first or time.perf_counter()
                answer.append(token_id)
        wall_seconds = time.perf_counter() - began
        done, appended = generation.done, generation.appended
        assert isinstance(done, GenerateResult) and appended is not None  # noqa: S101, PT018  # else it had raised
        self._remember(token_ids, answer)
        worker = (await session.info()).worker
        status = await self._workers.find(worker)
        return Turn(
            session=self._number,
            index=index,
            started_seconds=began - start,
            wall_seconds=wall_seconds,
            capacity=(session.sink or 0) + (session.window or 0),
            num_new_tokens=len(token_ids),
            num_tokens_out=len(answer),
            history_length=done.history_length,
            time_to_first_token_seconds=first - began if first else None,
            prefill_seconds=appended.prefill_seconds,
            decode_seconds=done.total_seconds,
            kv_live_bytes=done.kv_live_bytes,
            worker=worker,
            worker_rss_bytes=status.rss_bytes if status and status.rss_bytes else None,
            num_evicted_tokens=appended.num_evicted_tokens + done.num_evicted_tokens,
        )

    async def _reopened(self) -> AsyncSession:
        self._prompts = self._make_prompts()
        return await self.open()

    def _remember(self, token_ids: list[int], answer: list[int]) -> None:
        self._last_token_id = answer[-1] if answer else None
        if self._transcript is not None and self._options.is_exact:
            self._transcript += token_ids + answer

    def _forget(self, error: KakeyaError) -> None:
        self._transcript = self._last_token_id = None
        if isinstance(error, _GONE):
            self._session = None
