"""One user of a level, turn after turn with pauses for thought."""

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from kakeya import AsyncClient, KakeyaError
from kakeya.text.tokenizer_error import TokenizerError
from kakeya_bench.conversation import clock
from kakeya_bench.conversation.dialogue import Dialogue
from kakeya_bench.conversation.failure import describe
from kakeya_bench.conversation.prompts import NoPrompts
from kakeya_bench.conversation.speech import Speech
from kakeya_bench.conversation.turn import TimedTurn
from kakeya_bench.load.settings import LoadSettings

ERROR_PAUSE_SECONDS = 1.0
"""At least so long after a turn that failed: who does not think would else do nothing but fail."""


class Player:
    """Plays the turns of one session, of another one when it is lost.

    Args:
        number: which of the level's sessions. It says the same at each level, and thinks as long.
        num_sessions: of the level.
    """

    def __init__(
        self, number: int, num_sessions: int, client: AsyncClient, settings: LoadSettings, said: Speech
    ) -> None:
        self.dialogue = Dialogue(client, said, count(number, num_sessions), label="kakeya bench load")
        self._number = number
        self._settings = settings
        # The first turns are spread over the time of a thought, so that the sessions do not start in step.
        self._head_start_seconds = settings.think_time_s * number / num_sessions
        self._thoughts = think_times(settings.think_time_s, seed=settings.seed, conversation=number)

    async def play(self, start: float, on_turn: Callable[[TimedTurn], None]) -> None:
        """All turns that begin in the level.

        Args:
            start: when the level began, by `clock.now`.
            on_turn: gets each turn when it is over.
        """
        due = start + self._head_start_seconds
        for index in count(1):
            if due >= start + self._settings.level_seconds:
                return
            await clock.sleep(max(0.0, due - clock.now()))
            turn = await self._turn(index, start)
            if turn is None:
                return
            on_turn(turn)
            pause_seconds = next(self._thoughts)
            due = clock.now() + (max(pause_seconds, ERROR_PAUSE_SECONDS) if turn.error else pause_seconds)

    async def _turn(self, index: int, start: float) -> TimedTurn | None:
        """None where it would begin too late, since there was another session to be opened first."""
        began = clock.now()
        token_ids: list[int] = []
        try:
            token_ids = await self.dialogue.message()
            began = clock.now()  # another session and the wording of a message are none of the turn's time
            if began >= start + self._settings.level_seconds:
                return None
            answer = await self.dialogue.answer(token_ids)
            came: dict[str, Any] = {
                "num_tokens_out": len(answer.token_ids),
                "history_length": answer.done.history_length,
                "time_to_first_token_seconds": answer.time_to_first_token_seconds,
                "time_per_output_token_seconds": answer.time_per_output_token_seconds,
                "kv_live_bytes": answer.done.kv_live_bytes,
            }
        except (KakeyaError, TokenizerError, NoPrompts) as error:
            self.dialogue.forget(error)
            came = {"error": describe(error)}
        return TimedTurn(
            session=self._number,
            index=index,
            started_seconds=began - start,
            wall_seconds=clock.now() - began,
            is_warm_up=began < start + self._settings.warm_up_s,
            num_new_tokens=len(token_ids),
            **came,
        )


def think_times(mean_seconds: float, *, seed: int, conversation: int) -> Iterator[float]:
    """Seconds from the end of each answer to the next turn, without end: the same for the same seed and conversation.

    Exponential, as of people who may speak up at any moment: the turns of many of them come as by chance.
    """
    draw = random.Random(f"think {seed}/{conversation}")
    while True:
        yield draw.expovariate(1 / mean_seconds) if mean_seconds else 0.0
