"""A run of the bench: opens the sessions, plays them, keeps a report of what there is so far on disk."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from kakeya import KakeyaError
from kakeya_bench.conversation import clock, interruption, speech
from kakeya_bench.conversation.dialogue import closed_in_the_end
from kakeya_bench.conversation.failure import describe
from kakeya_bench.conversation.runtime import connected
from kakeya_bench.conversation.turn import Turn
from kakeya_bench.report import files, progress
from kakeya_bench.report.files import NotWritable
from kakeya_bench.report.progress import Progress
from kakeya_bench.report.quantities import counted
from kakeya_bench.session.player import Player
from kakeya_bench.session.report import Report
from kakeya_bench.session.settings import SessionSettings

JSON_NAME = "report.json"
_NOT_CLOSED = "a session was not closed and will expire"


async def run(settings: SessionSettings, console: Console) -> tuple[Report, int | None]:
    """Plays all turns, or those until a signal comes.

    Returns:
        The report in its last state, which is not on disk yet; and the exit status where a signal came.

    Raises:
        KakeyaError: the sessions cannot be opened.
        TokenizerError, NoPrompts: nothing can be said.
        NotWritable: the report has no place.
    """
    async with connected(settings) as (client, workers):
        said = await speech.choose(client, settings)
        said.rehearse()
        players = [Player(number, client, settings, workers, said) for number in range(settings.sessions)]
        dialogues = [player.dialogue for player in players]
        async with closed_in_the_end(dialogues, lambda why: _say(console, f"{_NOT_CLOSED}: {why}")):
            session, *_ = [await dialogue.open() for dialogue in dialogues]
            known = await said.learn(session, workers, config=settings.config, kv_dtype=settings.kv_dtype)
            report = Report(settings=settings, facts=known)
            files.write_json(settings.directory / JSON_NAME, report.document())
            with progress.shown(console, "session") as shown, interruption.heeded() as heeded:
                was_cut_short = await heeded.cuts_short(_play(players, report, shown, console))
            report.state = "given_up" if any(player.has_given_up for player in players) else "complete"
            if was_cut_short:
                report.state, report.why_not_exact = "interrupted", "the run was interrupted"
            report.why_not_rss = workers.why_not
    return report, heeded.exit_status


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


async def _play(players: Sequence[Player], report: Report, shown: Progress, console: Console) -> None:
    """All turns of all sessions, and what comes after them; the report grows and is written meanwhile."""
    start = clock.now()

    def on_turn(turn: Turn) -> None:
        report.turns.append(turn)
        shown.show(_share(report, clock.now() - start), _last(report, turn))

    try:
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(_keep(report, console))
            for playing in [tasks.create_task(player.play(start, on_turn)) for player in players]:
                await playing
            if report.settings.exact:
                shown.show(1.0, "replaying the transcript")
                await _replay(players[0], report)
            keeping.cancel()
    except ExceptionGroup as group:  # who catches it knows of no groups, and the first failure has ended all tasks
        raise group.exceptions[0] from None


async def _keep(report: Report, console: Console) -> None:
    """Writes what there is so far, now and then: what is there outlives kill -9. A disk may be full for a while."""
    while True:
        await asyncio.sleep(report.settings.checkpoint_s)
        so_far = replace(report, turns=[*report.turns])  # others come while it is put into words
        document = await asyncio.to_thread(so_far.document)
        try:
            await asyncio.to_thread(files.write_json, report.settings.directory / JSON_NAME, document)
        except NotWritable as error:
            _say(console, f"the report so far is not written: {error}")


async def _replay(player: Player, report: Report) -> None:
    try:
        report.next_tokens = await player.next_tokens()
    except (KakeyaError, LookupError) as error:
        report.why_not_exact = describe(error) if isinstance(error, KakeyaError) else str(error)


def _share(report: Report, seconds: float) -> float:
    """How much of the run is over: by turns or by time, whichever ends it first."""
    settings = report.settings
    by_turns = len(report.turns) / (settings.turns * settings.sessions) if settings.turns else 0.0
    by_time = seconds / settings.duration_s if settings.duration_s else 0.0
    return min(1.0, max(by_turns, by_time))


def _last(report: Report, turn: Turn) -> str:
    if turn.error is not None:
        return f"turn {turn.index} failed: {turn.error}"
    return f"{counted(len(report.turns), 'turn')}, history {turn.history_length:,}, {turn.kv_live_bytes:,} bytes live"
