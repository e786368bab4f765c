"""`kakeya chat`: talk with a model in the terminal."""

import asyncio
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from kakeya import AsyncClient, AsyncSession, KakeyaError, MissingExtra, tracing
from kakeya.cli import chat_flags, connection_flags
from kakeya.cli.connection import Connection
from kakeya.cli.cure import explain

SUMMARY = "talk with a model in the terminal"
EXIT_FAILURE = 1
EXIT_USAGE = 2
PATIENCE_SECONDS = 2.0
"""A person who waits longer for a session is told why."""


def main(argv: list[str]) -> int:
    """Chats until the user leaves; the session is closed however that happens."""
    from kakeya.cli.chat_tokenizer import ChatTokenizer, TokenizerError, default_name
    from kakeya.cli.conversation import Conversation
    from kakeya.cli.terminal import Terminal

    flags = chat_flags.parser(SUMMARY).parse_args(argv)
    try:
        connection = connection_flags.read(flags)
    except connection_flags.BadConnectionFlag as error:
        return _fail(str(error), EXIT_USAGE)
    terminal = Terminal(color=not flags.no_color)
    sampling = {name: getattr(flags, name) for name in chat_flags.SAMPLING}
    try:
        tracing.configure("chat")
        tokenizer = ChatTokenizer(flags.tokenizer or default_name())
        options = {"eos_token_ids": tokenizer.eos_token_ids, "label": "kakeya chat", "model": flags.model}
        with (
            terminal,
            asyncio.Runner() as runner,
            _woken_by_signals(runner.get_loop()),
            _session(runner, connection, options, terminal.note) as session,
        ):
            terminal.note(_welcome(session, tokenizer.has_template))
            Conversation(runner, session, tokenizer, terminal, sampling=sampling, system=flags.system).run()
    except KakeyaError as error:
        return _fail(explain(error, connection))
    except (TokenizerError, MissingExtra) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        if terminal.ended_by is None:
            raise
    return 0 if terminal.ended_by is None else 128 + terminal.ended_by


@contextmanager
def _session(
    runner: asyncio.Runner, connection: Connection, options: dict[str, Any], note: Callable[[str], None]
) -> Iterator[AsyncSession]:
    stack = AsyncExitStack()
    client = AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)
    try:
        runner.run(stack.enter_async_context(client))
        yield runner.run(stack.enter_async_context(runner.run(_opened(client, options, note))))
    finally:
        runner.run(stack.__aexit__(*sys.exc_info()))


async def _opened(client: AsyncClient, options: dict[str, Any], note: Callable[[str], None]) -> AsyncSession:
    loop = asyncio.get_running_loop()
    patience = loop.call_later(PATIENCE_SECONDS, note, "waiting for a free lane (Ctrl-C leaves)")
    try:
        return await client.create_session(**options, timeout_seconds=math.inf)
    finally:
        patience.cancel()


@contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    # Python calls signal handlers between two of its own instructions: a signal that comes just before the loop
    # goes to sleep would wait for the next token.
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    loop.add_reader(reader, reader.recv, 4096)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        loop.remove_reader(reader)
        reader.close()
        writer.close()


def _welcome(session: AsyncSession, has_template: bool) -> str:
    return (
        f"session {session.id} on {session.model}: sink {session.sink}, window {session.window}, "
        f"{session.reserved_bytes:,} bytes reserved{', exact' if session.exact else ''}"
        f"{'' if has_template else '; no chat template: plain text'}\n"
        "/info describes the session, /quit leaves"
    )


def _fail(message: str, status: int = EXIT_FAILURE) -> int:
    print(f"kakeya chat: error: {message}", file=sys.stderr)
    return status
