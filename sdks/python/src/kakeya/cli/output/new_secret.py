"""What was just made and is shown once: the secret of a key or token."""

import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from kakeya.cli.output import duration
from kakeya.cli.output.document import document
from kakeya.cli.output.table import print_json, printable


def add_flags(parser: ArgumentParser) -> None:
    """Flags of what makes one."""
    parser.add_argument("--label", default="", metavar="TEXT", help="free text for lists, at most 256 bytes")
    parser.add_argument(
        "--expires-in", type=duration.parse, metavar="TIME", help="e.g. 12h or 30d. By default it does not expire"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document with the secret in it")


def show(
    made: Message, secret: str, explanation: str, *, as_json: bool, line: str = "", more: Mapping[str, str] = {}
) -> None:
    """Prints the secret alone on standard output, so that a shell can take it, and the explanation beside it.

    Args:
        line: is printed in place of the secret.
        more: stands in the JSON document, too.
    """
    if as_json:
        shown: dict[str, Any] = {"secret": secret} | document(made) | dict(more)
        print_json(shown)
        return
    print(line or secret, flush=True)
    print(printable(explanation), file=sys.stderr)
