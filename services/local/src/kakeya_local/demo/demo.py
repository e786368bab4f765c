"""`kakeya demo`: long interleaved conversations, every byte of their KV checked, and one that goes on over HTTP."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from rich.console import Console

from kakeya import AsyncClient, AsyncSession, KakeyaError, MissingExtra
from kakeya.cli.output.table import printable
from kakeya.kv_bytes import ConfigError, kv_bytes_per_token, read_config
from kakeya.text.chat_tokenizer import ChatTokenizer, TokenizerError
from kakeya_local.demo.conversation import Conversation
from kakeya_local.demo.http_conversation import hold_again, left_sessions
from kakeya_local.demo.http_exchange import calls_tools
from kakeya_local.demo.http_report import HttpReport
from kakeya_local.demo.report import DemoReport, Opened
from kakeya_local.demo.scripts import SCRIPTS, Script
from kakeya_local.demo.summary import summarize, verdict
from kakeya_local.demo.table import turn_table
from kakeya_local.demo.tool_conversation import ToolConversation
from kakeya_local.demo.transcript import print_http, print_transcripts
from kakeya_local.errors import StackError
from kakeya_local.settings import DEFAULT_MODEL, UpSettings
from kakeya_local.signals import cancelled_by_signals
from kakeya_local.stack.planning.plan import checked_model
from kakeya_local.stack.stack import Stack, running
from kakeya_shared import installed_models, plugins
from kakeya_shared.gguf import ollama_store

EXIT_INTERRUPTED = 130
AnyConversation = Conversation | ToolConversation


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
    except (StackError, KakeyaError, TokenizerError, MissingExtra) as error:
        print(f"kakeya demo: error: {printable(str(error))}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED


def _check_place(json_file: Path | None) -> None:
    """Rather now than at the end. Raises StackError."""
    if json_file and (os.path.isdir(json_file) or not os.path.isdir(json_file.parent)):
        raise StackError(f"--json {json_file}: not a file in a directory that is there")


def _check_kind(model: str) -> None:
    """Raises StackError where the model is a GGUF file: what the demo measures is held against a config.json."""
    if os.path.isfile(model) or model.startswith(ollama_store.PREFIX):
        raise StackError(f"the demo needs a model with a config.json, and {model} is none; `kakeya up` serves it")


async def _run(options: DemoOptions, console: Console) -> int:
    _check_place(options.json_file)
    model = checked_model(options.model)
    _check_kind(model)
    tokenizer = ChatTokenizer(model)
    must_recall = options.has_defaults and _is_nano(model)
    scripts = chosen_scripts(options.num_conversations, with_expectations=must_recall)
    check_pins(scripts, tokenizer, options.sink + options.window)
    async with running(_settings(options, model, tokenizer), _report) as stack:
        async with AsyncExitStack() as open_sessions:
            client = await open_sessions.enter_async_context(_client(stack))
            conversations = [
                await _opened(client, open_sessions, tokenizer, number, script, stack)
                for number, script in enumerate(await _held(scripts, stack), 1)
            ]
            report = _new_report(stack, model, conversations)
            await _converse(conversations, report, options.num_turns, console)
        report.http = await _go_on_over_http(stack, report)
    if options.json_file:
        report.write_json(options.json_file)
    print_transcripts(report)
    if report.http:
        print_http(report.http)
    summarize(report, console)
    return verdict(report, long_histories=options.has_defaults)


def chosen_scripts(num_conversations: int, *, with_expectations: bool) -> list[Script]:
    """One for each conversation; they repeat."""
    scripts = SCRIPTS if with_expectations else [script.without_expectations() for script in SCRIPTS]
    return list(islice(cycle(scripts), num_conversations))


def _settings(options: DemoOptions, model: str, tokenizer: ChatTokenizer) -> UpSettings:
    return UpSettings(
        model=model,
        workers=options.num_workers,
        worker=(),
        sink=options.sink,
        window=options.window,
        lanes=options.num_conversations,
        bind="127.0.0.1:0",
        auth="none",
        http_bind="127.0.0.1:0" if tokenizer.has_template else None,  # what is no chat has no chat completions
        ephemeral=True,
    )


def num_pinned_tokens(script: Script, tokenizer: ChatTokenizer) -> int:
    """Of a script's system prompt, and its tools."""
    if not script.tools:
        return tokenizer.num_system_tokens(script.system)
    messages = [{"role": "system", "content": script.system}, {"role": "user", "content": "-"}]
    return tokenizer.num_pinned_tokens(messages, tools=script.tools)


def check_pins(scripts: Sequence[Script], tokenizer: ChatTokenizer, lane_tokens: int) -> None:
    """Raises StackError where a system prompt leaves no window in a lane of so many tokens."""
    for number, script in enumerate(scripts, 1):
        if script.tools and not tokenizer.writes_tools:
            continue  # it will not be held
        num_pinned = num_pinned_tokens(script, tokenizer)
        if num_pinned >= lane_tokens:
            raise StackError(
                f"the system prompt of conversation {number} has {num_pinned} tokens, which leave no window in lanes "
                f"of {lane_tokens}; choose a larger --window"
            )


async def _held(scripts: Sequence[Script], stack: Stack) -> list[Script]:
    """Those that the model can hold: some models are told of no tools. Raises StackError."""
    http = stack.plan.http
    if http is not None and await asyncio.to_thread(calls_tools, http.entrance, http.model):
        return [*scripts]
    for script in scripts:
        if script.tools:
            _report(f"{script.title!r} is left out: over HTTP the model calls no tools")
    return [script for script in scripts if not script.tools]


def _client(stack: Stack) -> AsyncClient:
    connection = stack.plan.connection
    return AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)


async def _opened(
    client: AsyncClient,
    open_sessions: AsyncExitStack,
    tokenizer: ChatTokenizer,
    number: int,
    script: Script,
    stack: Stack,
) -> AnyConversation:
    num_pinned = num_pinned_tokens(script, tokenizer)
    if script.tools and stack.plan.http is not None:
        http, lane = stack.plan.http, stack.workers[0]
        sink = max(lane.sink, num_pinned)
        window = lane.sink + lane.window - sink
        return ToolConversation(number, script, http.entrance, http.model, client, sink, window, num_pinned)
    session: AsyncSession = await client.create_session(
        eos_token_ids=tokenizer.eos_token_ids, label=script.title, pin=num_pinned
    )
    await open_sessions.enter_async_context(session)
    return Conversation(number, script, tokenizer, session, num_pinned)


def _new_report(stack: Stack, model: str, conversations: Sequence[AnyConversation]) -> DemoReport:
    worker = stack.workers[0]
    try:
        config = read_config(model_file(model, "config.json"))
        bytes_per_token = kv_bytes_per_token(config, worker.dtype)
    except ConfigError as error:
        raise StackError(str(error)) from error
    sessions = [
        Opened(
            each.number,
            each.script.title,
            each.script.system,
            each.sink,
            each.window,
            each.num_pinned,
            tuple(tool["function"]["name"] for tool in each.script.tools),
        )
        for each in conversations
    ]
    return DemoReport(worker.model, worker.sink, worker.window, bytes_per_token, sessions)


async def _converse(
    conversations: Sequence[AnyConversation], report: DemoReport, num_turns: int, console: Console
) -> None:
    with turn_table(console, _report, num_turns) as table:
        for number in range(1, num_turns + 1):
            for conversation in conversations:
                turn, readings = await conversation.take_turn(number)
                report.turns.append(turn)
                report.readings += readings
                table.add(turn)


async def _go_on_over_http(stack: Stack, report: DemoReport) -> HttpReport | None:
    """Holds some turns of the first conversation once more, those before them brought along by the client."""
    if stack.plan.http is None:
        _report("nothing is said over HTTP: the model has no chat template")
        return None
    _report("the first conversation goes on over HTTP")
    turns = [turn for turn in report.turns if turn.conversation == 1]
    said = await asyncio.to_thread(hold_again, stack.plan.http, report.sessions[0].system, turns)
    own = {turn.completion.session_id for turn in said}
    own |= {turn.completion.session_id for turn in report.turns if turn.completion}
    left = await left_sessions(stack.plan.connection, own)
    return HttpReport(report.sink + report.window, said, left)


def _is_nano(model: str) -> bool:
    try:
        return Path(model) == installed_models.directory(DEFAULT_MODEL)
    except plugins.PluginError:  # not installed, or broken: another one was named
        return False


def _report(line: str) -> None:
    print(f"kakeya demo: {line}", file=sys.stderr, flush=True)


def model_file(model: str, name: str) -> Path:
    """The local path of a model's file, downloaded where the model is a hub id. Raises StackError."""
    path = Path(model) / name
    if Path(model).is_dir():
        if not path.is_file():
            raise StackError(f"the model directory {model} holds no {name}")
        return path
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(huggingface_hub.hf_hub_download(model, name))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise StackError(f"cannot get {name} of {model}: {error}") from error
