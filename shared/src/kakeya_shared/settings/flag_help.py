"""The `--help` of settings, in the words of those who type them.

pydantic-settings reads flags and variables; what it would show of them are Python's types and values. Here each flag
says what is typed, what it is for, its default with the reason, and its variable, below the heading of its group.
"""

import shutil
import textwrap
from argparse import Action, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, CliPositionalArg, CliSettingsSource

_UNITS = {"seconds": "SECONDS", "bytes": "BYTES", "tokens": "TOKENS", "file": "FILE", "directory": "DIR"}
_TYPES: Mapping[type, str] = {int: "N", float: "NUMBER", Path: "PATH", SecretStr: "SECRET"}
_OTHERS = "other options"
_POSITIONAL = get_args(CliPositionalArg[str])[1]


def source(settings: type[BaseSettings]) -> CliSettingsSource[ArgumentParser]:
    """What reads the flags of a class of settings, and shows them, by its GROUPS and EXAMPLES."""
    examples: Sequence[str] = getattr(settings, "EXAMPLES", ())
    parser = ArgumentParser(
        prog=settings.model_config.get("cli_prog_name"),
        description=textwrap.dedent(settings.__doc__ or "").strip().replace("\n    ", "\n"),
        epilog="\n  ".join(["examples:", *examples]) if examples else None,
        formatter_class=_Formatter,
        allow_abbrev=False,
        usage=" ".join(["%(prog)s [OPTIONS]", *map(metavar, filter(is_positional, settings.model_fields.values()))]),
    )
    headings = _headings(settings)
    groups = {heading: parser.add_argument_group(heading) for heading in dict.fromkeys(headings.values())}

    def add_argument(context: Any, *flags: str, **options: Any) -> Action:
        name = options.get("dest", flags[0])  # one that is typed without a flag has no other name
        field = settings.model_fields[name]
        if "metavar" in options:
            options["metavar"] = metavar(field)
        options["help"] = _help(name, field, settings)
        heading = headings[name]
        action: Action = groups[heading].add_argument(*flags, **options)
        return action

    return CliSettingsSource(settings, root_parser=parser, add_argument_method=add_argument)


def is_positional(field: FieldInfo) -> bool:
    """Whether it is typed without a flag, as `CliPositionalArg` marks it."""
    return _POSITIONAL in field.metadata


def metavar(field: FieldInfo) -> str:
    """What is typed for a setting: as it says itself, else its unit, else its type."""
    said = _said(field)
    if said["metavar"]:
        return said["metavar"]
    if said["unit"].isupper():
        return said["unit"]
    kind = bare(field.annotation)
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) is tuple:
        kind = bare(get_args(kind)[0])
    return _UNITS.get(said["unit"]) or _TYPES.get(kind, "TEXT")


def _headings(settings: type[BaseSettings]) -> dict[str, str]:
    """By the name of the setting; those of the class itself first, then those of its bases."""
    tables = (vars(each).get("GROUPS", {}) for each in settings.__mro__)
    known = {name: heading for table in tables for heading, names in table.items() for name in names.split()}
    left = {name: _said(field)["group"] or _OTHERS for name, field in settings.model_fields.items()}
    return known | {name: heading for name, heading in left.items() if name not in known}


class _Formatter(RawDescriptionHelpFormatter):
    """As wide as the terminal, but no wider than what is read easily."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=min(110, shutil.get_terminal_size().columns))


def bare(kind: Any) -> Any:
    """A type without None and validators."""
    if get_origin(kind) in (Union, UnionType):
        return bare(next(each for each in get_args(kind) if each is not NoneType))
    return bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def _said(field: FieldInfo) -> dict[str, str]:
    extra = field.json_schema_extra
    nothing = dict.fromkeys(("help", "unit", "reason", "metavar", "group"), "")
    return nothing | ({name: str(value) for name, value in extra.items()} if isinstance(extra, dict) else {})


def _help(name: str, field: FieldInfo, settings: type[BaseSettings]) -> str:
    said = _said(field)
    default = _default(field, said["unit"], said["reason"])
    variable = f"{settings.model_config.get('env_prefix', '')}{name}".upper()
    return f"{said['help']}{default and f'. {default}'} [{variable}]".replace("%", "%%")


def _default(field: FieldInfo, unit: str, reason: str) -> str:
    because = f" ({reason})" if reason else ""
    if field.is_required():
        return "Required"
    if field.default in (None, "", (), PydanticUndefined) or isinstance(field.default, bool):
        return f"Default: {reason}" if reason else ""
    value = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
    if isinstance(field.default, tuple):  # as it is typed
        value = ",".join(map(str, field.default))
    return f"Default {value}{f' {unit}' if unit and not isinstance(field.default, str) else ''}{because}"
