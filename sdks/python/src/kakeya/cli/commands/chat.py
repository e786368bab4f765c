"""`kakeya chat`: talk with a model in the terminal."""

import asyncio
import os
import sys
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

import grpc

from kakeya import AsyncClient, KakeyaError, MissingExtra, ServedModel, tracing
from kakeya.cli.commands.cure import explain
from kakeya.cli.flags import chat_flags, connection_flags
from kakeya.cli.output.table import printable
from kakeya.cli.talk.talk import PinTooLong, Talk, hold

if TYPE_CHECKING:
    from kakeya.text.chat_tokenizer import ChatTokenizer

SUMMARY = "talk with a model in the terminal"
EXIT_FAILURE = 1
EXIT_USAGE = 2


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
    talk = Talk(
        label="kakeya chat",
        sampling=chat_flags.sampling(flags),
        system=flags.system,
        pins_system=not flags.no_pin,
        model=flags.model,
        inexact_resume=flags.inexact_resume,
    )
    try:
        tracing.configure("chat")
        with terminal:
            hold(talk, connection, terminal, partial(_tokenizer, flags))
    except KakeyaError as error:
        return _fail(explain(error, connection))
    except (TokenizerError, MissingExtra, PinTooLong, tracing.BadEndpoint) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        if terminal.ended_by is None:
            raise
    return 0 if terminal.ended_by is None else 128 + terminal.ended_by


def _tokenizer(
    flags: Namespace, runner: asyncio.Runner, client: AsyncClient
) -> "tuple[ServedModel | None, ChatTokenizer]":
    """The one that was named, else that of the model which will answer, and that model where the runtime was asked.

    Raises:
        TokenizerError, KakeyaError
    """
    from kakeya.cli.flags import tokenizer_choice
    from kakeya.text.chat_tokenizer import ChatTokenizer, TokenizerError

    make = partial(ChatTokenizer, template_file=flags.chat_template)
    if named := flags.tokenizer or os.environ.get("KAKEYA_TOKENIZER"):
        return None, make(tokenizer_choice.resolve(named))
    try:
        served = runner.run(client.list_models())
    except KakeyaError as error:
        if error.status is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        raise TokenizerError(f"the router is too old to say what it serves: {tokenizer_choice.CURE}") from error
    model = tokenizer_choice.model_to_answer(served, flags.model)
    return model, make(tokenizer_choice.installed_tokenizer(model.name))


def _fail(message: str, status: int = EXIT_FAILURE) -> int:
    print(f"kakeya chat: error: {printable(message)}", file=sys.stderr)
    return status
