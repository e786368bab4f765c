"""Standard output and its kin, in surroundings where they cannot be written to, and errors of the system in words."""

import io
import os
import sys

from kakeya.cli.output.table import printable


def prepare() -> None:
    """Opens what is closed, so that no connection takes its place; letters that a console lacks end no command."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def give_up_output() -> None:
    """What is still to be written to standard output is not: the interpreter must not try, and fail, at its end."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def reason(error: OSError | UnicodeError) -> str:
    """In one line."""
    if not isinstance(error, OSError) or error.strerror is None:
        return printable(str(error))
    if isinstance(error, FileNotFoundError) and not error.filename and _is_nowhere():
        return "the current folder is not there any more"
    place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return printable(f"{place}{error.strerror}")
