"""Values of flags that name several things."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_shared.settings.service import split


def _pair(text: str) -> str:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return text


def _origin(text: str) -> str:
    if text != "*" and (not text.startswith(("http://", "https://")) or text.count("/") != 2):
        raise ValueError(f"{text!r} is neither `*` nor an origin such as https://chat.example.com")
    return text


def _tool_parser(text: str) -> str:
    _, _, family = _pair(text).partition("=")
    if family not in SYNTAXES:
        raise ValueError(f"{family!r} is no family of tool calls; there are {', '.join(SYNTAXES)}")
    return text


Pairs = Annotated[tuple[Annotated[str, AfterValidator(_pair)], ...], NoDecode, BeforeValidator(split)]
ToolParsers = Annotated[tuple[Annotated[str, AfterValidator(_tool_parser)], ...], NoDecode, BeforeValidator(split)]
Origins = Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(split)]


def by_name(pairs: tuple[str, ...]) -> dict[str, str]:
    """The values of NAME=VALUE, by their names."""
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
