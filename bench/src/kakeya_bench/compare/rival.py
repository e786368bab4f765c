"""Who is compared with: servers that speak OpenAI's API, as `--rival` names them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    ValidationError,
    model_validator,
)

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
    """A server that speaks OpenAI's API over HTTP.

    Attributes:
        url: what `/completions`, `/chat/completions` or `/responses` is put behind.
        api: which of them it plays by. Completions are sent ids; the others texts, by OpenAI's client.
        model: as it calls it; None leaves the name out, which players of texts do not.
        tokenizer: of the model that is sent texts, with its chat template: a directory, an installed model or an id of
            the Hub. It counts what is new in a turn.
        messages: that a conversation of texts has when it is asked what a request of it costs its process; None: it is
            not asked.
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
    api: Literal["completions", "chat", "responses"] = "completions"
    model: str | None = None
    tokenizer: str | None = None
    messages: int | None = Field(default=None, ge=3)
    context: int | None = Field(default=None, ge=2)
    keep: int = Field(default=4, ge=0)
    drop: int | None = Field(default=None, ge=1)
    every: Literal["turn", "mark"] = "turn"
    kv: int | None = Field(default=None, ge=1)
    pid: int | None = Field(default=None, ge=1)
    key: Annotated[str, BeforeValidator(_key)] = Field(default="", alias="key-file", repr=False)
    fields: Mapping[str, Any] = {}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """One of texts is told what it needs, and nothing that is of no use to it."""
        if self.says_texts:
            if missing := [name for name in ("model", "tokenizer") if getattr(self, name) is None]:
                raise ValueError(f"api={self.api} needs {missing[0]}=")
            if self.context is not None or not self.plays_every_turn:
                raise ValueError(f"api={self.api} plays every turn, and keeps to no context: its server does")
        elif self.tokenizer is not None or self.messages is not None:
            raise ValueError("tokenizer= and messages= are of texts (api=chat, api=responses)")
        return self

    @property
    def says_texts(self) -> bool:
        """Else it says ids."""
        return self.api != "completions"

    @property
    def sends_all(self) -> bool:
        """The whole conversation each turn; else what is new in it."""
        return self.api != "responses"

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
            **self.model_dump(include={"url", "api", "model", "tokenizer", "context"}),
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
        where = "".join(f"{each}={given[str(each)]}: " for each in problem["loc"][:1])  # none where two do not agree
        raise ValueError(f"{name}: {where}{problem['msg']}") from None
