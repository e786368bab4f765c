"""A run of the bench: opens the sessions, plays them, keeps a report of what there is so far on disk."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count

from rich.console import Console

from kakeya import AsyncClient, AsyncSession, KakeyaError
from kakeya.bench import facts, interruption, progress, report_file, speech
from kakeya.bench.progress import Progress
from kakeya.bench.report_file import NotWritable
from kakeya.bench.session.options import Options
from kakeya.bench.session.player import Player
from kakeya.bench.session.report import Report
from kakeya.bench.speech import Speech
from kakeya.bench.turn import Turn
from kakeya.bench.workers import Workers
from kakeya.cli.commands.admin_calls import AdminCalls

JSON_NAME = "report.json"


async def run(options: Options, console: Console) -> tuple[Report, int | None]:
    """Plays all turns, or those until a signal comes.

    Returns:
        The report in its last state, which is not on disk yet; and the exit status where a signal came.

    Raises:
        KakeyaError: the sessions cannot be opened.
        TokenizerError, NoPrompts: nothing can be said.
        NotWritable: the report has no place.
    """
    connection = options.connection
    client = AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)
    with AdminCalls(connection) as admin:
        async with client:
            said = await speech.choose(client, options.conversation)
            workers = Workers(admin)
            players = [_player(number, client, options, workers, said) for number in range(options.num_sessions)]
            async with _opened(players, console) as sessions:
                said.check(sessions[0])
                report = Report(options, await _facts(sessions[0], workers, options, said))
                report_file.write_json(options.output / JSON_NAME, report.document())
                with progress.shown(console, "session") as shown, interruption.heeded() as heeded:
                    was_cut_short = await heeded.cuts_short(_play(players, report, shown, console))
                _settle(report, players, was_cut_short=was_cut_short)
                report.why_not_rss = workers.why_not
    return report, heeded.exit_status


def _player(number: int, client: AsyncClient, options: Options, workers: Workers, said: Speech) -> Player:
    # A session that replaces a lost one says something else: the number of its conversation is another.
    conversations = count(number, options.num_sessions)
    return Player(
        number, client, options, workers, eos_token_ids=said.eos_token_ids,
        make_prompts=lambda: said.prompts(next(conversations)),
    )  # fmt: skip


@asynccontextmanager
async def _opened(players: Sequence[Player], console: Console) -> AsyncIterator[list[AsyncSession]]:
    async with AsyncExitStack() as stack:
        sessions = []
        for player in players:
            stack.push_async_callback(_close, player, console)
            sessions.append(await player.open())
        yield sessions


async def _close(player: Player, console: Console) -> None:
    """What was measured is not lost where a session cannot be closed: it is said, and the session expires."""
    try:
        await player.close()
    except KakeyaError as error:
        _say(console, f"a session was not closed and will expire: {error}")


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


async def _facts(session: AsyncSession, workers: Workers, options: Options, said: Speech) -> facts.Facts:
    worker = await workers.find((await session.info()).worker)
    return facts.gather(session, worker, config=options.config, beside=said.directory, kv_dtype=options.kv_dtype)


async def _play(players: Sequence[Player], report: Report, shown: Progress, console: Console) -> None:
    """All turns of all sessions, and what comes after them; the report grows and is written meanwhile."""
    start = time.perf_counter()

    def on_turn(turn: Turn) -> None:
        report.turns.append(turn)
        shown.show(_share(report, time.perf_counter() - start), _last(report, turn))

    with _one_error():
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(_keep(report, console))
            try:
                async with asyncio.TaskGroup() as playing:
                    for player in players:
                        playing.create_task(player.play(start, on_turn))
                if report.options.is_exact:
                    shown.show(1.0, "replaying the transcript")
                    await _replay(players[0], report)
            finally:
                keeping.cancel()


@contextmanager
def _one_error() -> Iterator[None]:
    """What a task raised, as it is: who catches it knows of no groups, and the first failure ends all other tasks."""
    try:
        yield
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error from None


async def _keep(report: Report, console: Console) -> None:
    """Writes what there is so far, now and then: what is there outlives kill -9. A disk may be full for a while."""
    while True:
        await asyncio.sleep(report.options.checkpoint_seconds)
        document = await asyncio.to_thread(report.document)
        try:
            await asyncio.to_thread(report_file.write_json, report.options.output / JSON_NAME, document)
        except NotWritable as error:
            _say(console, f"the report so far is not written: {error}")


async def _replay(player: Player, report: Report) -> None:
    try:
        report.next_tokens = await player.next_tokens()
    except (KakeyaError, LookupError) as error:
        report.why_not_exact = f"{type(error).__name__}: {error}" if isinstance(error, KakeyaError) else str(error)


def _settle(report: Report, players: Sequence[Player], *, was_cut_short: bool) -> None:
    if was_cut_short:
        report.state, report.why_not_exact = "interrupted", "the run was interrupted"
    elif any(player.has_given_up for player in players):
        report.state = "given_up"
    else:
        report.state = "complete"


def _share(report: Report, seconds: float) -> float:
    """How much of the run is over: by turns or by time, whichever ends it first."""
    options = report.options
    by_turns = len(report.turns) / (options.num_turns * options.num_sessions) if options.num_turns else 0.0
    by_time = seconds / options.duration_seconds if options.duration_seconds else 0.0
    return min(1.0, max(by_turns, by_time))


def _last(report: Report, turn: Turn) -> str:
    if turn.error is not None:
        return f"turn {turn.index} failed: {turn.error}"
    return f"{len(report.turns):,} turns, history {turn.history_length:,}, {turn.kv_live_bytes:,} bytes live"
