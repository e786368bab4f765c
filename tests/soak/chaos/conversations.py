"""Conversations that are held over and over, each against how it went undisturbed."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

import kakeya
from tests.soak.chaos.conversation import Heard, OnFork, difference, hold, script
from tests.soak.report import Tally

_PAUSE_SECONDS = 0.2  # after an error
_SPECULATIONS = ("ngram", "none")

See = Callable[[str, kakeya.KakeyaError, float], None]


class Conversations:
    """Each script is held in one call a turn and in several, with drafts and without, by and by; undisturbed without.

    Args:
        seed: of the first script.
        number: of scripts.
        see: told of an error, of which session it is, and when that began (monotonic); else it is a violation.
        speculations: what drafts, in turn.

    Attributes:
        num_heard: undisturbed ones so far.
        num_sessions: disturbed ones that have begun.
        accepted: drafts of each proposer that were right, in those that were heard to their end.
        differing, errors: in words.
    """

    def __init__(
        self, tally: Tally, seed: int, number: int, see: See | None = None, speculations: Sequence[str] = _SPECULATIONS
    ) -> None:
        self.num_heard = self.num_sessions = 0
        self.accepted: Counter[str] = Counter()
        self.differing: list[str] = []
        self.errors: list[str] = []
        self._tally = tally
        self._scripts = [script(seed + each) for each in range(number)]
        self._expected: list[Heard] = []
        self._see = see or self.see
        self._speculations = speculations

    async def hear(self, client: kakeya.AsyncClient) -> None:
        """All of them, undisturbed."""
        self._expected = await asyncio.gather(*(self._hear(client, number) for number in range(len(self._scripts))))

    async def hold(
        self, client: kakeya.AsyncClient, goes_on: Callable[[], bool], on_fork: OnFork | None = None
    ) -> None:
        """One session after the other.

        Args:
            goes_on: whether another one is to begin.
            on_fork: as in `conversation.hold`.
        """
        while goes_on():
            number, began = self.num_sessions, time.monotonic()
            self.num_sessions += 1
            which, round_number = number % len(self._scripts), number // len(self._scripts)
            in_one_call = (number + round_number) % 2 == 0
            speculation = self._speculations[(number // 2 + round_number // 2) % len(self._speculations)]
            try:
                heard = await hold(
                    client, self._scripts[which], on_fork, in_one_call=in_one_call, speculation=speculation
                )
            except kakeya.KakeyaError as error:
                self._see(f"session {number}", error, began)
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                self.accepted[speculation] += heard.num_accepted
                if what := difference(heard, self._expected[which]):
                    self.differing.append(f"session {number} (script {which}): {what}")
                    self._tally.violate(self.differing[-1])

    def see(self, who: str, error: kakeya.KakeyaError, began: float = 0.0) -> None:
        """No client is to see any."""
        self.errors.append(f"{who}: {type(error).__name__}: {error}")
        self._tally.violate(self.errors[-1])

    async def _hear(self, client: kakeya.AsyncClient, number: int) -> Heard:
        heard = await hold(client, self._scripts[number])
        self.num_heard += 1
        return heard
