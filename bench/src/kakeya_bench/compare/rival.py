"""Who is compared with: `--rival 'NAME=URL,every=mark,...'`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, HttpUrl, ValidationError

RUNTIME = "kakeya"
"""The runtime's own name among the players."""
_NEXT = re.compile(r",(?=[^,=]*=[^,]*://)")
"""Between one rival and the next, where several stand in one text."""


def _name(text: str) -> str:
    if not re.fullmatch(r"[\w.+ -]+", text) or text == RUNTIME:
        raise ValueError(f"it cannot be a name: letters, digits, blanks and . + - _ can, but {RUNTIME!r}")
    return text


def _url(text: str) -> str:
    try:
        return str(HttpUrl(text)).rstrip("/")
    except ValidationError:
        raise ValueError("it is no URL such as http://127.0.0.1:8080/v1") from None


def _key(file: str) -> str:
    try:
        key = Path(file).expanduser().read_text(encoding="ascii").strip()
    except OSError as error:
        raise ValueError(error.strerror) from error
    except UnicodeDecodeError:
        key = ""  # the error has the bytes in it
    if not key.isprintable() or not key:
        raise ValueError("it holds no key")
    return key


class Rival(BaseModel):
    """A server that speaks OpenAI's completions over HTTP.

    Attributes:
        url: what `/completions` is put behind.
        model: as it calls it; None leaves the name out.
        context: most tokens that a prompt and its answer may have together; None for no limit.
        keep: first tokens of the conversation that are never dropped.
        drop: tokens that are dropped at a time when the context is full; None for half of it, as llama.cpp does when
            it shifts its own: then most turns find their history in the cache.
        every: "mark" for a server that keeps nothing from turn to turn.
        kv: most tokens that its KV holds; None for all of prompt and answer.
        pid: of its process; None where that is to be found by the port.
        key: what it is shown as a bearer token; "" for none.
        fields: of its requests, over the usual ones; None leaves a field out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(_name)]
    url: Annotated[str, AfterValidator(_url)]
    model: str | None = None
    context: int | None = Field(default=None, ge=2)
    keep: int = Field(default=4, ge=0)
    drop: int | None = Field(default=None, ge=1)
    every: Literal["turn", "mark"] = "turn"
    kv: int | None = Field(default=None, ge=1)
    pid: int | None = Field(default=None, ge=1)
    key: Annotated[str, BeforeValidator(_key)] = Field(default="", alias="key-file", repr=False)
    fields: Mapping[str, Any] = {}

    @property
    def plays_every_turn(self) -> bool:
        """Else it plays at the marks only."""
        return self.every == "turn"

    def num_to_drop(self, num_held: int, num_more: int) -> int:
        """How many tokens of its history, after the first `keep`, leave it for a turn; 0 where that fits.

        What follows a gap has other positions than before: a cache is of no use for it, or, where a server can rotate
        keys to other positions, that rounds them once more. So tokens are dropped many at a time, and most turns find
        their whole history in the cache.

        Args:
            num_held: tokens of the history.
            num_more: of the turn, new ones and the answer; with the first `keep` they fit the context.
        """
        if self.context is None or num_held + num_more <= self.context:
            return 0
        num_blocks = -(-(num_held + num_more - self.context) // self._block)
        return min(num_blocks * self._block, num_held - self.keep)

    @property
    def _block(self) -> int:
        return self.drop or max(1, (self.context or 0) // 2)

    def document(self) -> dict[str, object]:
        """As it stands in a report: everything but the key."""
        return {
            "kind": "rival",
            **self.model_dump(include={"url", "model", "context"}),
            "keep": self.keep if self.context else None,
            "drop": self._block if self.context else None,
            "kv_tokens": self.kv,
            "fields": dict(self.fields),
        }


def read_rivals(given: object) -> object:
    """Rivals in one text with commas, as flags and the variable have them. Raises ValueError."""
    return tuple(map(_rival, _NEXT.split(given))) if isinstance(given, str) else given


def _rival(text: str) -> Rival:
    first, *rest = text.split(",")
    name, _, url = first.partition("=")
    given = {"name": name, "url": url}
    for option, _, value in (each.partition("=") for each in rest):
        if option in given:
            raise ValueError(f"{name}: {option}={value}: it is there twice")
        given[option] = value
    try:
        return Rival.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        where = str(problem["loc"][0])
        raise ValueError(f"{name}: {where}={given[where]}: {problem['msg']}") from None


def read_fields(given: object) -> object:
    """NAME=JSON, several of them with commas, as flags and the variable have it. Raises ValueError."""
    if not isinstance(given, str):
        return given
    fields, rest = {}, given
    while rest := rest.strip(", "):
        name, _, document = rest.partition("=")
        try:
            fields[name], end = json.JSONDecoder().raw_decode(document)
        except ValueError as error:
            raise ValueError(f"{name}: {document!r} is no JSON: {error}") from None
        rest = document[end:]
    return fields
