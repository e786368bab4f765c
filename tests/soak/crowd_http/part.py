"""What the parts of the proof have in common."""

from collections.abc import Mapping
from typing import Any

from tests.soak.crowd_http.ground import Ground
from tests.soak.crowd_http.talk import Talk, Told
from tests.soak.progress import Progress
from tests.soak.run import Run

_MAX_SHOWN = 300


class Part(Run):
    """Attributes:
    late: what took too long, of a machine that has nothing else to do.
    """

    def __init__(self, ground: Ground, progress: Progress) -> None:
        super().__init__(ground.made, progress)
        self._ground = ground
        self.late: list[str] = []

    def refused(self, talk: Talk, error: Exception) -> None:
        """The conversation's next turn got no answer that is one."""
        self.tally.count(_turn(talk), "refused", "refused")
        self.tally.violate(f"{_turn(talk)} of conversation {talk.number}: {error}"[:_MAX_SHOWN], kind=str(error)[:40])

    def answered(self, talk: Talk, told: Told, faults: list[str]) -> None:
        """Its next turn got this answer, which has these faults."""
        self.tally.count(_turn(talk), told.state, told.why)
        for fault in faults:
            what = f"{_turn(talk)} of conversation {talk.number}: {fault}: {told}"
            self.tally.violate(what[:_MAX_SHOWN], kind=fault[:20])
        talk.hears(told)


def _turn(talk: Talk) -> str:
    return f"turn {talk.num_answers + 1}"


Facts = Mapping[str, Any]
