"""What the commands of all benches of a running stack do: ask, play, say what was found, write it down."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kakeya.cli.commands.cure import explain
from kakeya.cli.flags.connection_flags import BadConnectionFlag
from kakeya.cli.output.table import print_json, printable
from kakeya.errors import KakeyaError
from kakeya.kv_bytes import ConfigError
from kakeya.text.tokenizer_error import TokenizerError
from kakeya_bench.conversation.prompts import NoPrompts
from kakeya_bench.conversation.settings import RuntimeSettings
from kakeya_bench.report import files
from kakeya_bench.report.files import NotWritable
from kakeya_bench.report.verdict import EXIT_UNDECIDED, Verdict, exit_status

if TYPE_CHECKING:
    from rich.console import Console

    from kakeya_bench.report.blocks import Section

S = TypeVar("S", bound=RuntimeSettings, contravariant=True)


class Report(Protocol):
    """What a run has found so far."""

    def document(self) -> dict[str, Any]:
        """Everything, as plain values for JSON."""
        ...

    def verdicts(self) -> list[Verdict]:
        """What each gate says."""
        ...


class Bench(Protocol[S]):
    """What a bench brings, as a module that is loaded once its flags are known.

    Attributes:
        JSON_NAME: the file of the report that has everything.
    """

    JSON_NAME: str

    def run(self, settings: S, console: "Console") -> Coroutine[Any, Any, tuple[Report, int | None]]:
        """Plays it; returns the report in its last state, and the exit status where a signal came."""
        ...

    def summary(self, document: Mapping[str, Any]) -> "tuple[str, Sequence[Section]]":
        """What is printed: a title, and sections without their headings and pictures."""
        ...

    def files(self, document: Mapping[str, Any]) -> Mapping[str, bytes]:
        """The page and the pictures, by their names."""
        ...


def main(argv: list[str], kind: type[S], load: Callable[[], Bench[S]]) -> int:
    """Runs a bench and returns its exit status: 0, 1 where a gate fails, 2 where one cannot be judged, 130 on Ctrl-C.

    Args:
        load: imports what measures and draws, for which `--help` must not wait.
    """
    settings = kind.parse(argv)
    try:
        connection = settings.connection
        try:
            files.prepare(settings.directory)
            return _run(settings, load())
        except KakeyaError as error:
            return _fail(settings, explain(error, connection))
    except (BadConnectionFlag, ConfigError, NotWritable, NoPrompts, TokenizerError) as error:
        return _fail(settings, str(error))


def _run(settings: S, bench: Bench[S]) -> int:
    from rich.console import Console

    from kakeya_bench.report import console

    report, interrupted = asyncio.run(bench.run(settings, Console(file=sys.stderr)))
    document = report.document()
    try:
        files.write_all(settings.directory / bench.JSON_NAME, document, bench.files)
    finally:  # what was found is said where it cannot be written, and written where nobody listens any more
        if settings.print_json:
            print_json(document)
        else:
            console.print_sections(*bench.summary(document))
    print(f"report: {settings.directory}", file=sys.stderr if settings.print_json else sys.stdout)
    return interrupted if interrupted is not None else exit_status(report.verdicts())


def _fail(settings: RuntimeSettings, message: str) -> int:
    print(f"{settings.bench()}: error: {printable(message)}", file=sys.stderr)
    return EXIT_UNDECIDED
