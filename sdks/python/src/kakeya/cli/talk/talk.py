"""A session that is talked with, by a person or a program: opened, held, and closed however that ends."""

import asyncio
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kakeya import AsyncClient, AsyncSession, InvalidField, ServedModel, TokenOutOfVocabulary
from kakeya.cli.flags.connection import Connection
from kakeya.cli.output.welcome import welcome
from kakeya.cli.talk.wakeup import woken_by_signals

if TYPE_CHECKING:
    from kakeya.cli.output.terminal import Terminal
    from kakeya.text.chat_tokenizer import ChatTokenizer

    Find = Callable[[asyncio.Runner, AsyncClient], tuple[ServedModel | None, ChatTokenizer]]
    """The tokenizer, and the model that will answer where the runtime was asked for it."""

PATIENCE_SECONDS = 2.0
"""A person who waits longer for a session is told why."""


class PinTooLong(Exception):
    """No lane can keep the whole system prompt and a window beside it."""

    def __init__(self, num_tokens: int, reason: str) -> None:
        super().__init__(
            f"the system prompt has {num_tokens} tokens, too many to be pinned ({reason}); shorten it, or let it be "
            "forgotten in time: --no-pin"
        )


@dataclass(frozen=True)
class Talk:
    """What was asked for.

    Attributes:
        label: of the session.
        sampling: what `AsyncSession.turn` takes besides the tokens.
        system: system prompt of the first turn.
        pins_system: it is never forgotten.
        model: to be served by; None for that whose tokenizer is found.
        prompt: is answered alone; None: lines are read.
    """

    label: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    system: str | None = None
    pins_system: bool = True
    model: str | None = None
    inexact_resume: bool = False
    prompt: str | None = None


def hold(talk: Talk, connection: Connection, terminal: "Terminal", find: "Find") -> None:
    """Until the user leaves, or the one prompt is answered. In the main thread, with the terminal entered.

    Raises:
        KakeyaError, TokenizerError, PinTooLong; KeyboardInterrupt between two answers, and in any where nobody sits at
        the terminal.
    """
    from kakeya.cli.talk.conversation import Conversation

    with (
        asyncio.Runner() as runner,
        woken_by_signals(runner.get_loop()),
        _client(runner, connection) as client,
    ):
        model, tokenizer = find(runner, client)
        wants_pin = bool(talk.system) and talk.pins_system
        num_pinned = tokenizer.num_system_tokens(talk.system or "") if wants_pin else 0
        if model and num_pinned >= model.num_lane_tokens:  # rather now than after the wait for a lane
            raise PinTooLong(num_pinned, f"a lane keeps {model.num_lane_tokens:,}")
        options = {
            "eos_token_ids": tokenizer.eos_token_ids,
            "label": talk.label,
            "model": model.name if model else talk.model,
            "pin": num_pinned or None,
            "inexact_resume": talk.inexact_resume,
        }
        with _session(runner, client, tokenizer, options, terminal.note) as session:
            conversation = Conversation(
                runner, session, tokenizer, terminal, sampling=talk.sampling, system=talk.system, num_pinned=num_pinned
            )
            if talk.prompt is not None:
                conversation.answer_alone(talk.prompt)
                return
            terminal.note(welcome(session, tokenizer, wants_pin=wants_pin, num_pinned=num_pinned))
            conversation.run()


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
