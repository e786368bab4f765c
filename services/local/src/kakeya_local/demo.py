"""`kakeya demo`: long interleaved conversations, every byte of their KV checked."""

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from rich.console import Console

from kakeya import AsyncClient, AsyncSession, KakeyaError, MissingExtra
from kakeya.cli.chat_tokenizer import ChatTokenizer, TokenizerError
from kakeya_local.conversation import Conversation
from kakeya_local.demo_report import DemoReport, Opened
from kakeya_local.demo_scripts import SCRIPTS, Script
from kakeya_local.demo_summary import summarize
from kakeya_local.demo_table import turn_table
from kakeya_local.demo_transcript import print_transcripts
from kakeya_local.errors import StackError
from kakeya_local.kv_bytes import kv_bytes_per_token
from kakeya_local.model_files import model_file
from kakeya_local.plan import checked_model
from kakeya_local.settings import DEFAULT_MODEL, UpSettings
from kakeya_local.signals import cancelled_by_signals
from kakeya_local.stack import Stack, running
from kakeya_shared import installed_models, plugins

EXIT_INTERRUPTED = 130
HISTORY_FACTOR = 5
"""By the default number of turns a history must have outgrown sinks and window this many times."""
MAX_MISSED = 1
"""Answers of kakeya-nano that may lack what the script expects."""


@dataclass(frozen=True)
class DemoOptions:
    """What `kakeya demo` was asked for.

    Attributes:
        model: a directory, an installed model or a hub id; None for the default one, as it is installed.
        num_turns: of each conversation.
        sink, window: of a lane.
        has_defaults: whether the scripts run in the sizes for which they were written: histories that stay short are a
            failure then, and so is a kakeya-nano that does not recall what it must.
    """

    model: str | None
    num_turns: int
    num_conversations: int
    num_workers: int
    sink: int
    window: int
    json_file: Path | None
    has_defaults: bool


async def demo(options: DemoOptions) -> int:
    """Returns the exit status: 0 where every byte was right."""
    console = Console()
    try:
        with cancelled_by_signals():
            return await _run(options, console)
    except (StackError, KakeyaError, TokenizerError, MissingExtra, OSError) as error:
        print(f"kakeya demo: error: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED


async def _run(options: DemoOptions, console: Console) -> int:
    model = checked_model(options.model)
    tokenizer = ChatTokenizer(model)
    must_recall = options.has_defaults and _is_nano(model)
    scripts = chosen_scripts(options.num_conversations, with_expectations=must_recall)
    check_pins(scripts, tokenizer, options.sink + options.window)
    async with running(_settings(options, model), _report) as stack, AsyncExitStack() as open_sessions:
        client = await open_sessions.enter_async_context(_client(stack))
        conversations = [
            await _opened(client, open_sessions, tokenizer, number, script) for number, script in enumerate(scripts, 1)
        ]
        report = _new_report(stack, model, conversations)
        await _converse(conversations, report, options.num_turns, console)
    if options.json_file:
        report.write_json(options.json_file)
    print_transcripts(report)
    summarize(report, console)
    return verdict(report, long_histories=options.has_defaults)


def chosen_scripts(num_conversations: int, *, with_expectations: bool) -> list[Script]:
    """One for each conversation; they repeat."""
    scripts = SCRIPTS if with_expectations else [script.without_expectations() for script in SCRIPTS]
    return list(islice(cycle(scripts), num_conversations))


def _settings(options: DemoOptions, model: str) -> UpSettings:
    return UpSettings(
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


def check_pins(scripts: Sequence[Script], tokenizer: ChatTokenizer, lane_tokens: int) -> None:
    """Raises StackError where a system prompt leaves no window in a lane of so many tokens."""
    for number, script in enumerate(scripts, 1):
        num_pinned = tokenizer.num_system_tokens(script.system)
        if num_pinned >= lane_tokens:
            raise StackError(
                f"the system prompt of conversation {number} has {num_pinned} tokens, which leave no window in lanes "
                f"of {lane_tokens}; choose a larger --window"
            )


def _client(stack: Stack) -> AsyncClient:
    connection = stack.plan.connection
    return AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)


async def _opened(
    client: AsyncClient, open_sessions: AsyncExitStack, tokenizer: ChatTokenizer, number: int, script: Script
) -> Conversation:
    num_pinned = tokenizer.num_system_tokens(script.system)
    session: AsyncSession = await client.create_session(
        eos_token_ids=tokenizer.eos_token_ids, label=script.title, pin=num_pinned
    )
    await open_sessions.enter_async_context(session)
    return Conversation(number, script, tokenizer, session, num_pinned)


def _new_report(stack: Stack, model: str, conversations: Sequence[Conversation]) -> DemoReport:
    worker = stack.workers[0]
    config = json.loads(model_file(model, "config.json").read_text(encoding="utf-8"))
    sessions = [
        Opened(
            each.number,
            each.script.title,
            each.script.system,
            each.session.sink or 0,
            each.session.window or 0,
            each.num_pinned,
        )
        for each in conversations
    ]
    return DemoReport(worker.model, worker.sink, worker.window, kv_bytes_per_token(config, worker.dtype), sessions)


async def _converse(conversations: list[Conversation], report: DemoReport, num_turns: int, console: Console) -> None:
    with turn_table(console, _report, num_turns) as table:
        for number in range(1, num_turns + 1):
            for conversation in conversations:
                turn, readings = await conversation.take_turn(number)
                report.turns.append(turn)
                report.readings += readings
                table.add(turn)


def _is_nano(model: str) -> bool:
    try:
        return Path(model) == installed_models.directory(DEFAULT_MODEL)
    except plugins.PluginError:  # not installed, or broken: another one was named
        return False


def verdict(report: DemoReport, *, long_histories: bool) -> int:
    """Prints what is wrong to standard error; 1 where something is, else 0."""
    problems = report.wrong_bytes()
    if long_histories:
        problems += report.short_histories(HISTORY_FACTOR)
    if len(missed := report.missed()) > MAX_MISSED:
        problems += [
            f"conversation {turn.conversation} turn {turn.turn}: {turn.user!r} is answered {turn.answer!r}, "
            f"{turn.fault}"
            for turn in missed
        ]
    for problem in problems:
        print(f"kakeya demo: error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _report(line: str) -> None:
    print(f"kakeya demo: {line}", file=sys.stderr, flush=True)
