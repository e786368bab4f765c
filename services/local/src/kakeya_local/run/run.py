"""`kakeya run`: a stack, a talk, and the end of both."""

import signal
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kakeya import KakeyaError, MissingExtra, tracing
from kakeya.cli.commands.cure import explain
from kakeya.cli.flags import chat_flags
from kakeya.cli.output.table import printable
from kakeya.cli.output.terminal import Terminal
from kakeya.cli.talk.talk import PinTooLong, Talk, hold
from kakeya.text.chat_tokenizer import ChatTokenizer, TokenizerError
from kakeya_local.errors import StackError
from kakeya_local.run.background_stack import BackgroundStack
from kakeya_local.run.loading import Loading
from kakeya_local.settings import UpSettings
from kakeya_local.stack.planning.plan import checked_model, require_parts

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(flags: Namespace) -> int:
    """Returns the exit status, when nothing is left of what was started. KeyboardInterrupt passes."""
    is_alone = bool(flags.prompt) or not sys.stdin.isatty()
    terminal = Terminal(color=not flags.no_color, is_alone=is_alone, heeds_endings=True)
    prompt = _prompt(flags.prompt) if is_alone else None
    if prompt == "":
        return _fail("nothing is asked: give a PROMPT, something on standard input, or a terminal", EXIT_USAGE)
    try:
        tracing.configure("run")
        with terminal:
            _talk(flags, prompt, terminal)
    except (StackError, TokenizerError, MissingExtra, PinTooLong, tracing.BadEndpoint) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        if terminal.ended_by is None:
            raise
    return 0 if terminal.ended_by is None else 128 + terminal.ended_by


def _talk(flags: Namespace, prompt: str | None, terminal: Terminal) -> None:
    """Raises StackError, TokenizerError, MissingExtra, PinTooLong, KeyboardInterrupt."""
    require_parts("router", "worker")
    model = checked_model(flags.model)
    tokenizer = ChatTokenizer(model, template_file=flags.chat_template)  # first: what is wrong with it costs no start
    talk = Talk(
        label="kakeya run",
        sampling=chat_flags.sampling(flags),
        system=flags.system,
        pins_system=not flags.no_pin,
        prompt=prompt,
    )
    loading = Loading(flags.model, terminal, color=not flags.no_color)
    stack = BackgroundStack(_settings(flags, model), loading.report)
    try:
        with loading:
            stack.start()
            connection = stack.wait_ready()
        hold(talk, connection, terminal, lambda _runner, _client: (None, tokenizer))
    except KakeyaError as error:
        raise stack.failure or StackError(explain(error, connection)) from error
    finally:
        with _undisturbed():
            stack.stop()


def _settings(flags: Namespace, model: str) -> UpSettings:
    """Of a stack for one session, which keeps nothing and is found by nobody."""
    return UpSettings(
        model=model,
        workers=1,
        worker=(),
        window=flags.window,
        lanes=1,
        slab_bytes=None,
        threads=flags.threads,
        bind="127.0.0.1:0",
        auth="none",
        insecure=False,
        http_bind=None,
        chat_template=None,
        ephemeral=True,
        observe=False,
    )


def _prompt(words: list[str]) -> str:
    """What is to be answered alone: what standard input says, and the words behind it."""
    piped = "" if sys.stdin.isatty() else sys.stdin.read().strip()
    return "\n\n".join(part for part in (piped, " ".join(words).strip()) if part)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Inside, signals that would end this process have no effect: what was begun is ended."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fail(message: str, status: int = EXIT_FAILURE) -> int:
    print(f"kakeya run: error: {printable(message)}", file=sys.stderr)
    return status
