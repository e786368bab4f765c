"""A sweep: one level after the other, with a report of what there is so far on disk."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from kakeya import AsyncClient, AsyncSession, KakeyaError
from kakeya.cli.commands.cure import explain
from kakeya.errors import DeadlineExceeded, Exhausted
from kakeya_bench.conversation import clock, interruption, speech
from kakeya_bench.conversation.dialogue import closed_in_the_end
from kakeya_bench.conversation.failure import describe
from kakeya_bench.conversation.runtime import Workers, connected
from kakeya_bench.conversation.speech import Speech
from kakeya_bench.conversation.turn import TimedTurn
from kakeya_bench.load.level import Level, LevelState, kv_total
from kakeya_bench.load.player import Player
from kakeya_bench.load.report import Report
from kakeya_bench.load.settings import LoadSettings
from kakeya_bench.report import files, progress
from kakeya_bench.report.progress import Progress

JSON_NAME = "load.json"
_NO_ROOM = (Exhausted, DeadlineExceeded)
"""No lane, no quota, no place in the queue; or one in a queue that takes longer than the time-out."""


async def run(settings: LoadSettings, console: Console) -> tuple[Report, int | None]:
    """Plays all levels, or those until a signal comes.

    Returns:
        The report in its last state, which is not on disk yet; and the exit status where a signal came.

    Raises:
        KakeyaError: not one session can be opened, for another reason than that there is no room for it.
        TokenizerError, NoPrompts: nothing can be said.
        NotWritable: the report has no place.
    """
    report = Report(settings=settings)
    with interruption.heeded() as heeded, progress.shown(console, "load") as shown:
        async with connected(settings) as (client, workers):
            said = await speech.choose(client, settings)
            said.rehearse()
            sweep = _Sweep(client, settings, said, workers, report, shown)
            try:
                was_cut_short = await heeded.cuts_short(sweep.play())
                report.state = "interrupted" if was_cut_short else "complete"
            except KakeyaError as error:
                if report.facts is None:
                    raise
                report.state, report.why_broken_off = "broken_off", explain(error, settings.connection)
    return report, heeded.exit_status


@dataclass(frozen=True, slots=True)
class _Sweep:
    """What all levels have in common, and the report that grows."""

    client: AsyncClient
    settings: LoadSettings
    said: Speech
    workers: Workers
    report: Report
    shown: Progress

    async def play(self) -> None:
        """All levels. Raises KakeyaError, TokenizerError, NotWritable."""
        for num_sessions in self.settings.sessions:
            level = Level(num_sessions)
            self.report.levels.append(level)
            await self._play(level)
            await asyncio.to_thread(files.write_json, self.settings.directory / JSON_NAME, self.report.document())

    async def _play(self, level: Level) -> None:
        numbers = range(level.num_sessions)
        players = [Player(number, len(numbers), self.client, self.settings, self.said) for number in numbers]
        async with closed_in_the_end([player.dialogue for player in players], level.not_closed.append):
            inside = await _open(level, players)
            if inside:
                if self.report.facts is None:
                    self.report.facts = await self.said.learn(_sessions(inside)[0], self.workers)
                await self._turns(level, inside)
                level.kv = await kv_total(_sessions(inside), self.workers)
        level.state = LevelState.COMPLETE if inside else LevelState.REFUSED

    async def _turns(self, level: Level, players: Sequence[Player]) -> None:
        """All turns of a level, which grows meanwhile."""
        start, num_before = clock.now(), len(self.report.levels) - 1
        settings = self.settings

        def on_turn(turn: TimedTurn) -> None:
            level.turns.append(turn)
            share = min(1.0, (clock.now() - start) / settings.level_seconds)
            what = f"level of {level.num_sessions}: {len(level.turns):,} turns"
            self.shown.show((num_before + share) / len(settings.sessions), what)

        try:
            async with asyncio.TaskGroup() as playing:
                for player in players:
                    playing.create_task(player.play(start, on_turn))
        finally:
            level.measured_seconds = max(0.0, clock.now() - start - settings.warm_up_s)
        # Where everybody thinks to the end, there was time for turns all the same.
        level.measured_seconds = max(level.measured_seconds, settings.duration_s)


async def _open(level: Level, players: Sequence[Player]) -> Sequence[Player]:
    """Those who got in. Nobody knocks after the first who did not: each would wait in the queue again.

    Raises KakeyaError where that has another reason than that there is no room.
    """
    for player in players:
        try:
            await player.dialogue.open()
        except _NO_ROOM as error:
            level.refusal = describe(error)
            break
        level.num_opened += 1
    return players[: level.num_opened]


def _sessions(players: Sequence[Player]) -> list[AsyncSession]:
    """Those that are held: a lost one may not have been replaced."""
    return [player.dialogue.session for player in players if player.dialogue.session is not None]
