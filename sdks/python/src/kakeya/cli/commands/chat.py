"""`kakeya chat`: talk with a model in the terminal."""

import asyncio
import math
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import grpc

from kakeya import (
    AsyncClient,
    AsyncSession,
    InvalidField,
    KakeyaError,
    MissingExtra,
    ServedModel,
    TokenOutOfVocabulary,
    tracing,
)
from kakeya.cli.commands.cure import explain
from kakeya.cli.commands.wakeup import woken_by_signals
from kakeya.cli.flags import chat_flags, connection_flags
from kakeya.cli.flags.connection import Connection
from kakeya.cli.output.table import printable
from kakeya.cli.output.welcome import welcome

if TYPE_CHECKING:
    from kakeya.cli.output.terminal import Terminal
    from kakeya.text.chat_tokenizer import ChatTokenizer

SUMMARY = "talk with a model in the terminal"
EXIT_FAILURE = 1
EXIT_USAGE = 2
PATIENCE_SECONDS = 2.0
"""A person who waits longer for a session is told why."""


class PinTooLong(Exception):
    """No lane can keep the whole system prompt and a window beside it."""

    def __init__(self, num_tokens: int, reason: str) -> None:
        super().__init__(
            f"the system prompt has {num_tokens} tokens, too many to be pinned ({reason}); shorten it, or let it be "
            "forgotten in time: --no-pin"
        )


def main(argv: list[str]) -> int:
    """Chats until the user leaves; the session is closed however that happens."""
    from kakeya.cli.output.terminal import Terminal
    from kakeya.text.chat_tokenizer import TokenizerError

    flags = chat_flags.parser(SUMMARY).parse_args(argv)
    try:
        connection = connection_flags.read(flags)
    except connection_flags.BadConnectionFlag as error:
        return _fail(str(error), EXIT_USAGE)
    terminal = Terminal(color=not flags.no_color)
    try:
        tracing.configure("chat")
        _talk(flags, connection, terminal)
    except KakeyaError as error:
        return _fail(explain(error, connection))
    except (TokenizerError, MissingExtra, PinTooLong, tracing.BadEndpoint) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        if terminal.ended_by is None:
            raise
    return 0 if terminal.ended_by is None else 128 + terminal.ended_by


def _talk(flags: Namespace, connection: Connection, terminal: "Terminal") -> None:
    from kakeya.cli.commands.conversation import Conversation

    sampling = {name: getattr(flags, name) for name in chat_flags.SAMPLING}
    with (
        terminal,
        asyncio.Runner() as runner,
        woken_by_signals(runner.get_loop()),
        _client(runner, connection) as client,
    ):
        model, tokenizer = _tokenizer(runner, client, flags)
        wants_pin = bool(flags.system) and not flags.no_pin
        num_pinned = tokenizer.num_system_tokens(flags.system) if wants_pin else 0
        if model and num_pinned >= model.num_lane_tokens:  # rather now than after the wait for a lane
            raise PinTooLong(num_pinned, f"a lane keeps {model.num_lane_tokens:,}")
        options = {
            "eos_token_ids": tokenizer.eos_token_ids,
            "label": "kakeya chat",
            "model": model.name if model else flags.model,
            "pin": num_pinned or None,
            "inexact_resume": flags.inexact_resume,
        }
        with _session(runner, client, tokenizer, options, terminal.note) as session:
            terminal.note(welcome(session, tokenizer, wants_pin=wants_pin, num_pinned=num_pinned))
            Conversation(
                runner, session, tokenizer, terminal, sampling=sampling, system=flags.system, num_pinned=num_pinned
            ).run()


def _tokenizer(
    runner: asyncio.Runner, client: AsyncClient, flags: Namespace
) -> "tuple[ServedModel | None, ChatTokenizer]":
    """The one that was named, else that of the model which will answer, and that model where the runtime was asked.

    Raises:
        TokenizerError, KakeyaError
    """
    from kakeya.cli.flags import tokenizer_choice
    from kakeya.text.chat_tokenizer import ChatTokenizer, TokenizerError

    if named := flags.tokenizer or os.environ.get("KAKEYA_TOKENIZER"):
        return None, ChatTokenizer(tokenizer_choice.resolve(named))
    try:
        served = runner.run(client.list_models())
    except KakeyaError as error:
        if error.status is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        raise TokenizerError(f"the router is too old to say what it serves: {tokenizer_choice.CURE}") from error
    model = tokenizer_choice.model_to_answer(served, flags.model)
    return model, ChatTokenizer(tokenizer_choice.installed_tokenizer(model.name))


@contextmanager
def _client(runner: asyncio.Runner, connection: Connection) -> Iterator[AsyncClient]:
    client = AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)
    with _entered(runner, client):
        yield client


@contextmanager
def _session(
    runner: asyncio.Runner,
    client: AsyncClient,
    tokenizer: "ChatTokenizer",
    options: dict[str, Any],
    note: Callable[[str], None],
) -> Iterator[AsyncSession]:
    """A session of a model that knows all ids of the tokenizer. Raises PinTooLong, TokenizerError, KakeyaError."""
    from kakeya.cli.flags import tokenizer_choice

    try:
        session = runner.run(_opened(client, options, note))
    except InvalidField as error:
        if error.metadata.get("field") != "pin":
            raise
        raise PinTooLong(options["pin"], str(error)) from error
    except TokenOutOfVocabulary as error:
        raise tokenizer_choice.of_another_model(tokenizer.name, str(error)) from error
    with _entered(runner, session):
        if session.vocab_size is not None and tokenizer.num_token_ids > session.vocab_size:
            reason = f"{tokenizer.num_token_ids:,} ids, and the model knows {session.vocab_size:,}"
            raise tokenizer_choice.of_another_model(tokenizer.name, reason)
        yield session


@contextmanager
def _entered(runner: asyncio.Runner, context: AbstractAsyncContextManager[Any]) -> Iterator[None]:
    stack = AsyncExitStack()
    try:
        runner.run(stack.enter_async_context(context))
        yield
    finally:
        runner.run(stack.__aexit__(*sys.exc_info()))


async def _opened(client: AsyncClient, options: dict[str, Any], note: Callable[[str], None]) -> AsyncSession:
    loop = asyncio.get_running_loop()
    patience = loop.call_later(PATIENCE_SECONDS, note, "waiting for a free lane (Ctrl-C leaves)")
    try:
        return await client.create_session(**options, timeout_seconds=math.inf)
    finally:
        patience.cancel()


def _fail(message: str, status: int = EXIT_FAILURE) -> int:
    print(f"kakeya chat: error: {printable(message)}", file=sys.stderr)
    return status
