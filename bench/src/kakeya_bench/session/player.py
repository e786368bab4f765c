"""One session of a run, turn after turn."""

from collections.abc import Callable
from itertools import count
from typing import Any

from kakeya import AsyncClient, KakeyaError
from kakeya_bench.conversation import clock
from kakeya_bench.conversation.dialogue import Dialogue, replay
from kakeya_bench.conversation.failure import describe
from kakeya_bench.conversation.runtime import Workers
from kakeya_bench.conversation.speech import Speech
from kakeya_bench.conversation.turn import Turn
from kakeya_bench.session.settings import SessionSettings

ERROR_PAUSE_SECONDS = 1.0
MAX_ERRORS_IN_A_ROW = 10
NUM_EXACT_TOKENS = 32


class Player:
    """Plays the turns of one session, of another one when it is lost.

    Args:
        number: which of the run's sessions.

    Attributes:
        has_given_up: too many turns failed, one after the other.
    """

    def __init__(
        self, number: int, client: AsyncClient, settings: SessionSettings, workers: Workers, said: Speech
    ) -> None:
        self.has_given_up = False
        self.dialogue = Dialogue(client, said, count(number, settings.sessions), label="kakeya bench")
        self._number = number
        self._client = client
        self._settings = settings
        self._workers = workers
        self._eos_token_ids = said.eos_token_ids
        self._transcript: list[int] | None = []  # None once it is not known

    async def play(self, start: float, on_turn: Callable[[Turn], None]) -> None:
        """All turns.

        Args:
            start: when the run's first one was due, by `clock.now`.
            on_turn: gets each turn when it is over.
        """
        num_errors, settings = 0, self._settings
        spacing_seconds = settings.turn_spacing_s or 0.0
        for index in count(1):
            due = start + (index - 1 + self._number / settings.sessions) * spacing_seconds
            if settings.turns is not None and index > settings.turns:
                return
            if settings.duration_s is not None and max(due, clock.now()) >= start + settings.duration_s:
                return
            await clock.sleep(max(0.0, due - clock.now()))
            turn = await self._turn(index, start)
            on_turn(turn)
            num_errors = num_errors + 1 if turn.error else 0
            if num_errors == MAX_ERRORS_IN_A_ROW:
                self.has_given_up = True
                return
            if turn.error:
                await clock.sleep(ERROR_PAUSE_SECONDS)

    async def next_tokens(self) -> tuple[list[int], list[int]]:
        """What the session generates next, and what one does that is given its transcript; both are closed then.

        Raises:
            KakeyaError
            LookupError: the transcript is not known, since a turn failed.
        """
        session, said = self.dialogue.session, self._transcript
        if session is None or not said:
            raise LookupError("a turn failed, or none was played: the transcript is not known")
        played = await session.generate(max_tokens=NUM_EXACT_TOKENS).all()
        await session.close()
        async with await self._client.create_session(
            eos_token_ids=self._eos_token_ids,
            label="kakeya bench, replay",
            model=session.model,
            sink=session.sink,
            window=session.window,
            fingerprint=session.fingerprint or None,
            timeout_seconds=self._settings.timeout_s,
        ) as other:
            await replay(other, said, timeout_seconds=self._settings.timeout_s)
            return played, await other.generate(max_tokens=NUM_EXACT_TOKENS).all()

    async def _turn(self, index: int, start: float) -> Turn:
        began = clock.now()
        token_ids: list[int] = []
        try:
            token_ids = await self.dialogue.message()
            began = clock.now()  # another session and the wording of a message are none of the turn's time
            found = await self._played(token_ids)
        except KakeyaError as error:
            self.dialogue.forget(error)
            self._transcript = None
            found = {"wall_seconds": clock.now() - began, "error": describe(error)}
        return Turn(
            session=self._number, index=index, started_seconds=began - start, num_new_tokens=len(token_ids), **found
        )

    async def _played(self, token_ids: list[int]) -> dict[str, Any]:
        """What is known of a turn that did not fail."""
        answer = await self.dialogue.answer(token_ids)
        session = self.dialogue.session
        assert session is not None  # noqa: S101  # it has answered
        if self._transcript is not None and self._settings.exact:
            self._transcript += [*token_ids, *answer.token_ids]
        worker = (await session.info()).worker
        status = await self._workers.find(worker)
        return {
            "wall_seconds": answer.wall_seconds,
            "capacity": (session.sink or 0) + (session.window or 0),
            "num_tokens_out": len(answer.token_ids),
            "history_length": answer.done.history_length,
            "time_to_first_token_seconds": answer.time_to_first_token_seconds,
            "prefill_seconds": answer.appended.prefill_seconds,
            "decode_seconds": answer.done.total_seconds,
            "kv_live_bytes": answer.done.kv_live_bytes,
            "worker": worker,
            "worker_rss_bytes": status.rss_bytes if status and status.rss_bytes else None,
            "num_evicted_tokens": answer.appended.num_evicted_tokens + answer.done.num_evicted_tokens,
        }
