"""The flags of a command line as variables: for a process that is started later, elsewhere, without flags."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from kakeya_shared.settings import flag_help
from kakeya_shared.settings.service import ServiceSettings, whole_words


@dataclass(frozen=True)
class MayBePath:
    """Marks a text, by `Annotated`, that is a path or something else.

    Attributes:
        is_path: tells by the text.
    """

    is_path: Callable[[str], bool]


def is_here(text: str) -> bool:
    """Of what may also be a name: a directory or a file of that name is here."""
    return os.path.exists(os.path.expanduser(text))


def is_no_url(text: str) -> bool:
    """Of what may also be a URL."""
    return bool(text) and "://" not in text


def is_below_a_directory(text: str) -> bool:
    """Of what may also be a program that is looked for on PATH."""
    return os.sep in text


def as_variables(settings: type[ServiceSettings], argv: list[str]) -> dict[str, str]:
    """What was typed, by the variable that means the same, with paths made absolute.

    Args:
        argv: a command line that `settings.parse` has taken.
    """
    typed: Mapping[str, Any] = vars(flag_help.source(settings).root_parser.parse_args(whole_words(argv)))
    return {settings.variable(name): _text(settings.model_fields[name], value) for name, value in typed.items()}


def placed(settings: type[ServiceSettings], variables: Mapping[str, str]) -> dict[str, str]:
    """Of variables those that are settings' own, with paths made absolute."""
    fields = {settings.variable(name): field for name, field in settings.model_fields.items()}
    return {name: _text(fields[name], text) for name, text in variables.items() if name in fields}


def secrets(settings: type[ServiceSettings]) -> set[str]:
    """The variables that are shown to nobody."""
    return {
        settings.variable(name)
        for name, field in settings.model_fields.items()
        if flag_help.bare(field.annotation) is SecretStr
    }


def _text(field: FieldInfo, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = ",".join(value) if isinstance(value, list) else str(value)
    marks = [mark for mark in field.metadata if isinstance(mark, MayBePath)]
    is_path = flag_help.bare(field.annotation) is Path or any(mark.is_path(text) for mark in marks)
    return os.path.abspath(os.path.expanduser(text)) if is_path else text
