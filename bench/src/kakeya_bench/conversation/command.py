"""What the commands of all benches of a running stack do: ask, play, say what was found, write it down."""

import asyncio
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

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
from kakeya_bench.report.verdict import EXIT_UNDECIDED, exit_status


def main(kind: type[RuntimeSettings], room: str, argv: list[str]) -> int:
    """Runs a bench and returns its exit status: 0, 1 where a gate fails, 2 where one cannot be judged, 130 on Ctrl-C.

    Args:
        room: the bench's package. Its `run` plays and names the document, its `page` has the words and the drawings;
            they are imported once the flags are known, since `--help` must not wait for them.
    """
    settings = kind.parse(argv)
    try:
        connection = settings.connection
        try:
            files.prepare(settings.directory)
            return _run(settings, room)
        except KakeyaError as error:
            return _fail(settings, explain(error, connection))
    except (BadConnectionFlag, ConfigError, NotWritable, NoPrompts, TokenizerError) as error:
        return _fail(settings, str(error))


def _run(settings: RuntimeSettings, room: str) -> int:
    from rich.console import Console

    run, page = import_module(f"{room}.run"), import_module(f"{room}.page")
    report, interrupted = asyncio.run(run.run(settings, Console(file=sys.stderr)))
    publish(report.document(), page, settings.directory / run.JSON_NAME, is_json=settings.print_json)
    return int(exit_status(report.verdicts()) if interrupted is None else interrupted)


def publish(document: Mapping[str, Any], page: Any, path: Path | None, *, is_json: bool) -> None:
    """Writes a report down and says what was found.

    Args:
        page: the module that has the report's words and drawings.
        path: of the document; None where nothing is written.
        is_json: the document itself is printed.

    Raises:
        NotWritable
    """
    from kakeya_bench.report import console

    try:
        if path:
            files.write_all(path, document, page.files)
    finally:  # what was found is said where it cannot be written, and written where nobody listens any more
        if is_json:
            print_json(document)
        else:
            console.print_sections(*page.summary(document))
    if path:
        print(f"report: {path.parent}", file=sys.stderr if is_json else sys.stdout)


def _fail(settings: RuntimeSettings, message: str) -> int:
    print(f"{settings.bench()}: error: {printable(message)}", file=sys.stderr)
    return EXIT_UNDECIDED
