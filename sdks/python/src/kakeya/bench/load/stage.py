"""The turns of a level."""

import asyncio
import time
from collections.abc import Callable, Sequence

from kakeya.bench.load.level import Level
from kakeya.bench.load.options import Options
from kakeya.bench.load.period import Period
from kakeya.bench.load.player import Player
from kakeya.bench.load.timed_turn import TimedTurn


async def play(level: Level, players: Sequence[Player], options: Options, on_share: Callable[[float], None]) -> None:
    """Plays all turns of a level, which grows meanwhile.

    Args:
        on_share: gets the share of the level's time that is over, 0 to 1, at the end of each turn.
    """
    period = Period(time.perf_counter(), options.warm_up_seconds, options.duration_seconds)

    def on_turn(turn: TimedTurn) -> None:
        level.turns.append(turn)
        passed_seconds = time.perf_counter() - period.start
        on_share(min(1.0, passed_seconds / (period.warm_up_seconds + period.duration_seconds)))

    try:
        async with asyncio.TaskGroup() as playing:
            for player in players:
                playing.create_task(player.play(period, on_turn))
    finally:
        level.measured_seconds = period.measured_seconds(time.perf_counter())
    # Where everybody thinks to the end, there was time for turns all the same.
    level.measured_seconds = max(level.measured_seconds, period.duration_seconds)
