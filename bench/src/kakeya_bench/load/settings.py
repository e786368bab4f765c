"""What a user asks of the bench: `kakeya bench load --help`."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from kakeya_bench.conversation.settings import BenchSettings
from kakeya_bench.conversation.turn import TimedTurn
from kakeya_shared.settings.service import setting

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
SUMMARY = "more and more sessions at once, with think times: how many get their answers in time"


def _rising(given: str) -> tuple[int, ...]:
    """A text with commas, as numbers. Raises ValueError where they do not grow."""
    parts = [part.strip() for part in given.split(",")]
    numbers = tuple(int(part) if part.isdecimal() else 0 for part in parts)
    if min(numbers) < 1 or any(before >= after for before, after in pairwise(numbers)):
        raise ValueError(f"{given!r} is no list of whole numbers from 1 on, each larger than the one before")
    return numbers


class LoadSettings(BenchSettings):
    __doc__ = f"""Plays {SUMMARY}.

    Each level of the sweep opens its own sessions, and closes them. A user of each appends a message, reads the answer
    as it comes, thinks, and goes on. Goodput is the turns in a second that succeeded and met both limits.

    Progress goes to standard error, a line for each level to standard output, everything to load.json, load.html and
    load.png. Exit status: 0 when every gate is passed; 1 where one fails, which without --judge-goodput is where a turn
    failed; 2 where one cannot be judged, or the bench cannot run as asked; 130 on Ctrl-C, which still writes the
    report. docs/benches.md says how to read it.
    """

    model_config = BenchSettings.configured(command="load")

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the load": "sessions warm_up_s duration_s think_time_s",
        "the judgement": "ttft_limit_s tpot_limit_s goal_share judge_goodput",
    }
    EXAMPLES: ClassVar[Sequence[str]] = (
        "kakeya bench load --sessions 1,2,4,8 --think-time-s 5 --duration-s 60",
        "kakeya bench load --sessions 16 --judge-goodput --goal-share 0.95",
    )

    sessions: Annotated[tuple[int, ...], NoDecode, BeforeValidator(_rising)] = setting(
        "1,2,4,8",
        "sessions that are held at the same time, for each level; each larger than the one before. Where not all get "
        "in, the level is played with those that do",
        metavar="N,N,...",
        validate_default=True,
    )
    warm_up_s: _Seconds = setting(
        5.0,
        "at the start of each level; turns that begin in it do not count",
        unit="seconds",
        reason="caches fill, threads start",
    )
    duration_s: _Seconds = setting(
        60.0,
        "of each level after the warm-up; no turn begins later, and those that run come to their ends",
        unit="seconds",
        reason="some dozens of turns, so that a p95 means something",
        gt=0,
    )
    think_time_s: _Seconds = setting(
        2.0,
        "mean time from the end of an answer to the next turn, drawn from an exponential distribution; the first "
        "turns are spread over it. 0: nobody thinks",
        unit="seconds",
        reason="a short message is soon typed",
    )
    ttft_limit_s: _Seconds = setting(
        2.0, "most time from the append to the first token", unit="seconds", reason="who waits longer turns away"
    )
    tpot_limit_s: _Seconds = setting(
        0.2,
        "most time per output token after the first, on average over the turn",
        unit="seconds",
        reason="about as fast as people read",
    )
    goal_share: float = setting(
        0.9,
        "share of the turns that must meet both limits for a level to count as carried",
        reason="one late answer in ten is forgiven",
        metavar="SHARE",
        gt=0,
        le=1,
    )
    judge_goodput: bool = setting(
        False,
        "judge the gate `goodput`, too: at the largest level all sessions get in, and that share of the turns meets "
        "both limits",
    )

    @property
    def level_seconds(self) -> float:
        """How long turns of a level begin."""
        return self.warm_up_s + self.duration_s

    def is_in_time(self, turn: TimedTurn) -> bool:
        """Whether a turn succeeded within both limits. An answer of one token has no time per token after the first."""
        first, each = turn.time_to_first_token_seconds, turn.time_per_output_token_seconds
        if turn.error is not None or first is None or first > self.ttft_limit_s:
            return False
        return each is None or each <= self.tpot_limit_s

    def document(self) -> dict[str, object]:
        return super().document() | {
            "numbers_of_sessions": list(self.sessions),
            "warm_up_seconds": self.warm_up_s,
            "duration_seconds": self.duration_s,
            "think_time_seconds": self.think_time_s,
            "limits": {
                "time_to_first_token_seconds": self.ttft_limit_s,
                "time_per_output_token_seconds": self.tpot_limit_s,
            },
            "goal_share": self.goal_share,
            "judges_goodput": self.judge_goodput,
        }
