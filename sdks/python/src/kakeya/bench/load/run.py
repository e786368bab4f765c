"""A sweep: one level after the other, with a report of what there is so far on disk."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console

from kakeya import AsyncClient, AsyncSession, KakeyaError
from kakeya.bench import facts, interruption, progress, report_file, speech
from kakeya.bench.load import kv_total, stage
from kakeya.bench.load.level import Level, LevelState
from kakeya.bench.load.opening import opened
from kakeya.bench.load.options import Options
from kakeya.bench.load.player import Player
from kakeya.bench.load.report import JSON_NAME, Report
from kakeya.bench.progress import Progress
from kakeya.bench.speech import Speech
from kakeya.bench.workers import Workers
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.commands.cure import explain


async def run(options: Options, console: Console) -> tuple[Report, int | None]:
    """Plays all levels, or those until a signal comes.

    Returns:
        The report in its last state, which is not on disk yet; and the exit status where a signal came.

    Raises:
        KakeyaError: not one session can be opened, for another reason than that there is no room for it.
        TokenizerError, NoPrompts: nothing can be said.
        NotWritable: the report has no place.
    """
    connection = options.connection
    client = AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)
    with AdminCalls(connection) as admin, interruption.heeded() as heeded, progress.shown(console, "load") as shown:
        async with client:
            said = await speech.choose(client, options.conversation)
            _rehearse(said)
            sweep = _Sweep(client, options, said, Workers(admin), Report(options), shown)
            try:
                was_cut_short = await heeded.cuts_short(sweep.play())
            except KakeyaError as error:
                if sweep.report.facts is None:
                    raise
                sweep.break_off(explain(error, connection))
            else:
                sweep.settle(was_cut_short=was_cut_short)
    return sweep.report, heeded.exit_status


def _rehearse(said: Speech) -> None:
    """A message and the one after it. Raises NoPrompts, TokenizerError, before anything is opened."""
    prompts = said.prompts(0)
    for _ in range(2):
        prompts.next_turn(None)


@dataclass
class _Sweep:
    """What all levels have in common, and the report that grows."""

    client: AsyncClient
    options: Options
    said: Speech
    workers: Workers
    report: Report
    shown: Progress

    async def play(self) -> None:
        """All levels. Raises KakeyaError, TokenizerError, NotWritable."""
        for num_sessions in self.options.numbers_of_sessions:
            level = Level(num_sessions)
            self.report.levels.append(level)
            await self._play(level)
            await asyncio.to_thread(report_file.write_json, self.options.output / JSON_NAME, self.report.document())

    def settle(self, *, was_cut_short: bool) -> None:
        """The state of the end."""
        self.report.state = "interrupted" if was_cut_short else "complete"
        self._end_last_level()

    def break_off(self, why: str) -> None:
        """The state where a level cannot be opened."""
        self.report.state, self.report.why_broken_off = "broken_off", why
        self._end_last_level()

    async def _play(self, level: Level) -> None:
        players = [
            Player(number, level.num_sessions, self.client, self.options, self.said)
            for number in range(level.num_sessions)
        ]
        async with opened(players, level) as inside:
            if not inside:
                level.state = LevelState.REFUSED
                return
            await self._learn(inside[0].session)
            await stage.play(level, inside, self.options, self._teller(level))
            sessions = [player.session for player in inside if player.session is not None]
            level.kv = await kv_total.read(sessions, self.workers)
        level.state = LevelState.COMPLETE

    async def _learn(self, session: AsyncSession | None) -> None:
        """What is known of the model, from the first session of all."""
        if self.report.facts is None and session is not None:
            self.said.check(session)
            worker = await self.workers.find((await session.info()).worker)
            self.report.facts = facts.gather(session, worker, config=None, beside=self.said.directory, kv_dtype=None)

    def _teller(self, level: Level) -> Callable[[float], None]:
        """Shows how far the sweep is, from how far the level is."""
        before = len(self.report.levels) - 1

        def tell(share: float) -> None:
            what = f"level of {level.num_sessions}: {len(level.turns):,} turns"
            self.shown.show((before + share) / len(self.options.numbers_of_sessions), what)

        return tell

    def _end_last_level(self) -> None:
        for level in self.report.levels[-1:]:
            if level.state is LevelState.RUNNING:
                level.state = LevelState.BROKEN_OFF
