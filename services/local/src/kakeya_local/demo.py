"""`kakeya demo`: long interleaved conversations over real text, every byte of their KV checked."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from rich.console import Console
from tokenizers import Tokenizer

from kakeya import AsyncClient, KakeyaError
from kakeya_local.conversation import Conversation
from kakeya_local.demo_checkpoint import demo_checkpoint
from kakeya_local.demo_report import DemoReport
from kakeya_local.demo_summary import summarize
from kakeya_local.demo_table import turn_table
from kakeya_local.errors import StackError
from kakeya_local.kv_bytes import kv_bytes_per_token
from kakeya_local.model_files import model_file
from kakeya_local.plan import checked_model
from kakeya_local.settings import UpSettings
from kakeya_local.signals import cancelled_by_signals
from kakeya_local.stack import Stack, running

EXIT_INTERRUPTED = 130
HISTORY_FACTOR = 5
"""By the default number of turns a history must have outgrown sinks and window this many times."""


@dataclass(frozen=True)
class DemoOptions:
    """What `kakeya demo` was asked for.

    Attributes:
        model: directory or hub id; None for the demo checkpoint.
        long_histories: whether histories that stay short are a failure.
    """

    model: str | None
    num_turns: int
    num_conversations: int
    num_workers: int
    sink: int
    window: int
    json_file: Path | None
    long_histories: bool


async def demo(options: DemoOptions) -> int:
    """Returns the exit status: 0 where every byte was right."""
    console = Console()
    try:
        with cancelled_by_signals():
            return await _run(options, console)
    except (StackError, KakeyaError, OSError) as error:
        print(f"kakeya demo: error: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED


async def _run(options: DemoOptions, console: Console) -> int:
    texts = await demo_checkpoint() / "texts"
    model = checked_model(options.model or str(texts.parent))
    tokenizer = Tokenizer.from_file(str(model_file(model, "tokenizer.json")))
    settings = UpSettings(
        model=model,
        workers=options.num_workers,
        sink=options.sink,
        window=options.window,
        lanes=options.num_conversations,
        bind="127.0.0.1:0",
        auth="none",
        http_bind=None,
        ephemeral=True,
    )
    async with running(settings, _report) as stack, AsyncExitStack() as open_sessions:
        client = await open_sessions.enter_async_context(_client(stack))
        conversations = [
            Conversation(
                number,
                text.stem.replace("_", " "),
                _sentences(text, tokenizer),
                await open_sessions.enter_async_context(await client.create_session(label=text.stem)),
            )
            for number, text in enumerate(islice(cycle(sorted(texts.iterdir())), options.num_conversations), 1)
        ]
        report = await _converse(conversations, _new_report(stack, model), options.num_turns, console)
    if options.json_file:
        report.write_json(options.json_file)
    summarize(report, conversations, tokenizer, console)
    return verdict(report, long_histories=options.long_histories)


def _client(stack: Stack) -> AsyncClient:
    connection = stack.plan.connection
    return AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)


def _sentences(text: Path, tokenizer: Tokenizer) -> list[list[int]]:
    lines = text.read_text().splitlines()
    return [tokenizer.encode(line + "\n", add_special_tokens=False).ids for line in lines]


def _new_report(stack: Stack, model: str) -> DemoReport:
    worker = stack.workers[0]
    config = json.loads(model_file(model, "config.json").read_text())
    return DemoReport(worker.sink, worker.window, kv_bytes_per_token(config, worker.dtype))


async def _converse(
    conversations: list[Conversation], report: DemoReport, num_turns: int, console: Console
) -> DemoReport:
    with turn_table(console) as table:
        for number in range(1, num_turns + 1):
            for conversation in conversations:
                turn, readings = await conversation.take_turn(number)
                report.turns.append(turn)
                report.readings += readings
                table.add(turn)
    return report


def verdict(report: DemoReport, *, long_histories: bool) -> int:
    """Prints what is wrong to standard error; 1 where something is, else 0."""
    problems = report.wrong_bytes()
    if long_histories:
        problems += report.short_histories(HISTORY_FACTOR)
    for problem in problems:
        print(f"kakeya demo: error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _report(line: str) -> None:
    print(f"kakeya demo: {line}", file=sys.stderr, flush=True)
