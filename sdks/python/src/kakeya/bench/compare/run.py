"""A run of the bench: opens the session, plays the conversation, keeps a report on disk."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console

from kakeya import AsyncClient, AsyncSession
from kakeya.bench import facts, interruption, progress, report_file
from kakeya.bench.compare import rival_kv
from kakeya.bench.compare.options import Options
from kakeya.bench.compare.report import JSON_NAME, Report
from kakeya.bench.compare.rival_player import RivalPlayer
from kakeya.bench.compare.rounds import Rounds
from kakeya.bench.compare.runtime_player import RuntimePlayer
from kakeya.bench.workers import Workers
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.flags import tokenizer_choice


async def run(options: Options, console: Console) -> tuple[Report, int | None]:
    """Plays all turns, or those until a signal comes.

    Returns:
        The report in its last state, which is not on disk yet; and the exit status where a signal came.

    Raises:
        KakeyaError: the session cannot be opened.
        TokenizerError: it is not known which model is meant.
        ConfigError: the config.json that is named cannot be used.
        NotWritable: the report has no place.
    """
    connection = options.connection
    client = AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)
    with AdminCalls(connection) as admin, interruption.heeded() as heeded:
        async with client:
            model = tokenizer_choice.model_to_answer(await client.list_models(), options.model)
            kv = rival_kv.gather(model.name, options.config)
            workers = Workers(admin)
            runtime = RuntimePlayer(client, options, workers)
            rivals = [RivalPlayer(rival, options, kv_bytes_per_token=kv.bytes_per_token) for rival in options.rivals]
            async with _opened(runtime) as session:
                report = Report(options, await _facts(session, workers, options), kv)
                report_file.write_json(options.output / JSON_NAME, report.document())
                with progress.shown(console, "compare") as shown:
                    rounds = Rounds(runtime, rivals, report, shown)
                    if await heeded.cuts_short(rounds.play(model.vocab_size)):
                        report.state = "interrupted"
    return report, heeded.exit_status


@asynccontextmanager
async def _opened(runtime: RuntimePlayer) -> AsyncIterator[AsyncSession]:
    try:
        yield await runtime.open()
    finally:
        await runtime.close()


async def _facts(session: AsyncSession, workers: Workers, options: Options) -> facts.Facts:
    worker = await workers.find((await session.info()).worker)
    return facts.gather(session, worker, config=options.config, beside=None, kv_dtype=None)
