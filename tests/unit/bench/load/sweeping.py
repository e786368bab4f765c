"""What tests of `kakeya bench load` share beside their fixtures."""

from collections import deque
from typing import Any

from kakeya_bench.conversation.turn import TimedTurn
from kakeya_bench.load.level import Level, LevelState
from kakeya_bench.load.settings import LoadSettings
from tests.unit.sdk.scripted_runtime import Fault

TICK_SECONDS = 0.1
"""How long a look at the clock takes, so that levels end by themselves."""
SHORT = (
    "--max-tokens",
    "4",
    "--warm-up-s",
    "0",
    "--duration-s",
    "10",
    "--think-time-s",
    "0",
    "--ttft-limit-s",
    "60",
    "--tpot-limit-s",
    "60",
)
"""Levels of a few turns by that clock, and of next to no time by any other: answers of four tokens, no thoughts."""


class Always(deque[Fault]):
    """One fault for every call of a method."""

    def popleft(self) -> Fault:
        return self[0]


def said(*flags: str) -> tuple[str, ...]:
    """With three random ids a turn, where no tokenizer is named."""
    return flags if "--tokenizer" in flags else ("--random-tokens", "3", *flags)


def turn(first: float | None = 1.0, each: float | None = 0.1, **fields: Any) -> TimedTurn:
    """One that never was, with these times to the first token and for each after it."""
    given: dict[str, Any] = {
        "session": 0,
        "index": 1,
        "started_seconds": 0.0,
        "wall_seconds": 2.0,
        "is_warm_up": False,
        "num_new_tokens": 3,
        "num_tokens_out": 11,
        "history_length": 14,
        "kv_live_bytes": 14_336,
        **fields,
    }
    return TimedTurn(time_to_first_token_seconds=first, time_per_output_token_seconds=each, **given)


def failed(**fields: Any) -> TimedTurn:
    """One that never was, and that got no answer."""
    nothing = {"num_tokens_out": 0, "history_length": 0, "kv_live_bytes": None, "error": "Internal: no"}
    return turn(None, None, **{**nothing, **fields})


def level(num_sessions: int, *turns: TimedTurn, **fields: Any) -> Level:
    """One that never was, of ten seconds, into which all sessions got."""
    given: dict[str, Any] = {"num_opened": num_sessions, "state": LevelState.COMPLETE, "measured_seconds": 10.0}
    return Level(num_sessions, turns=list(turns), **{**given, **fields})


def asked(*flags: str) -> LoadSettings:
    """Settings of these flags."""
    return LoadSettings.parse(list(flags))
