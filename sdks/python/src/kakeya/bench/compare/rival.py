"""Who is compared with: `--rival 'NAME=URL,every=mark,...'`."""

import json
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

RUNTIME = "kakeya"
"""The runtime's own name among the players."""
DEFAULT_KEEP = 4
_NAME = re.compile(r"[\w.+ -]+")


@dataclass(frozen=True, slots=True)
class Rival:
    """A server that speaks OpenAI's completions over HTTP.

    Attributes:
        url: what `/completions` is put behind.
        model: as it calls it; None leaves the name out.
        context: most tokens that a prompt and its answer may have together; None for no limit.
        keep: first tokens of the conversation that are never dropped.
        drop: tokens that are dropped at a time when the context is full.
        plays_every_turn: False for a server that keeps nothing from turn to turn: it plays at the marks only.
        kv_tokens: most tokens that its KV holds; None for all of prompt and answer.
        pid: of its process; None where that is to be found by the port.
        key: what it is shown as a bearer token; "" for none.
        fields: of its requests, over the usual ones; None leaves a field out.
    """

    name: str
    url: str
    model: str | None = None
    context: int | None = None
    keep: int = DEFAULT_KEEP
    drop: int = 0
    plays_every_turn: bool = True
    kv_tokens: int | None = None
    pid: int | None = None
    key: str = field(default="", repr=False)
    fields: Mapping[str, Any] = field(default_factory=dict)


def rival(text: str) -> Rival:
    """A type of flags. Raises ArgumentTypeError."""
    first, *rest = text.split(",")
    name, _, url = first.partition("=")
    if not _NAME.fullmatch(name) or name == RUNTIME:
        raise ArgumentTypeError(f"{name!r} cannot be a name: letters, digits, blanks and . + - _ can, but {RUNTIME!r}")
    given: dict[str, Any] = {"name": name, "url": _url(url)}
    for option in rest:
        key, _, value = option.partition("=")
        if key not in _OPTIONS:
            raise ArgumentTypeError(f"{name}: there is no option {key!r}, only {', '.join(_OPTIONS)}")
        attribute, parse = _OPTIONS[key]
        try:
            given[attribute] = parse(value)
        except ValueError as error:
            raise ArgumentTypeError(f"{name}: {key}={value}: {error}") from None
    # Half of the context, as llama.cpp does when it shifts its own: then most turns find their history in the cache.
    context = given.get("context")
    return Rival(**{"drop": max(1, (context or 0) // 2), **given})


def rival_fields(text: str) -> tuple[str, dict[str, Any]]:
    """A type of flags: NAME=JSON. Raises ArgumentTypeError."""
    name, _, document = text.partition("=")
    try:
        fields = json.loads(document)
    except ValueError as error:
        raise ArgumentTypeError(f"{name}: {document!r} is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ArgumentTypeError(f"{name}: {document!r} is no JSON object")
    return name, fields


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:  # a port that is no number
        is_usable = False
    if not is_usable:
        raise ArgumentTypeError(f"{text!r} is no URL such as http://127.0.0.1:8080/v1")
    return text.rstrip("/")


def _count(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ValueError(f"not a whole number from {least} on")
        return int(text)

    return parse


def _every(text: str) -> bool:
    if text not in ("turn", "mark"):
        raise ValueError("`turn` or `mark`")
    return text == "turn"


def _key(text: str) -> str:
    try:
        key = Path(os.path.expanduser(text)).read_text(encoding="ascii").strip()
    except OSError as error:
        raise ValueError(error.strerror) from error
    except UnicodeDecodeError:
        raise ValueError("holds no key") from None  # the error has the bytes in it
    if not key.isprintable() or not key:
        raise ValueError("holds no key")
    return key


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "model": ("model", str),
    "context": ("context", _count(2)),
    "keep": ("keep", _count(0)),
    "drop": ("drop", _count(1)),
    "every": ("plays_every_turn", _every),
    "kv": ("kv_tokens", _count(1)),
    "pid": ("pid", _count(1)),
    "key-file": ("key", _key),
}
