"""What a user asks of the bench: `kakeya bench compare --help`; above all, who is compared with."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

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
from pydantic_settings import NoDecode

from kakeya_bench.conversation.settings import RuntimeSettings
from kakeya_shared.settings.service import setting, split

RUNTIME = "kakeya"
"""The runtime's own name among the players."""
_NEXT = re.compile(r",(?=[^,=]*=[^,]*://)")
"""Between one rival and the next, where several stand in one text."""
SUMMARY = "the same conversation on this runtime and on servers that know no sessions"
USUAL_MARKS = (1, 10, 50, 200)
_Marks = Annotated[tuple[Annotated[int, Field(ge=1)], ...], NoDecode, BeforeValidator(split)]


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


def _factors(given: object) -> object:
    return dict(part.rpartition("=")[::2] for part in split(given)) if isinstance(given, str) else given  # type: ignore[attr-defined]  # a text is split into a list


_Rivals = Annotated[tuple[Rival, ...], NoDecode, BeforeValidator(read_rivals)]
_Fields = Annotated[dict[str, dict[str, Any]], NoDecode, BeforeValidator(read_fields)]
_Factors = Annotated[dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]], NoDecode, BeforeValidator(_factors)]


class CompareSettings(RuntimeSettings):
    __doc__ = f"""Plays {SUMMARY}.

    They play turn by turn, side by side: random tokens, answers of one length. Progress goes to standard error, a
    summary to standard output, everything to compare.json, compare.html and compare.png.
    Exit status: 0 when every claim holds; 1 where one does not; 2 where one cannot be judged, or the bench cannot run
    as asked; 130 on Ctrl-C, which still writes the report. docs/benches.md says how to read it.
    """

    model_config = RuntimeSettings.configured(command="compare")

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the conversation": "turns new_tokens marks warm_up_turns",
        "the rivals": "rival fields at_least config",
        "the report": "checkpoint_s",
    }
    EXAMPLES: ClassVar[Sequence[str]] = (
        "kakeya bench compare --rival llama.cpp=http://127.0.0.1:8080/v1,context=4096",
        "kakeya bench compare --rival vLLM=http://127.0.0.1:9000/v1,model=Qwen/Qwen3-0.6B --at-least vLLM=2",
    )

    turns: int = setting(200, "turns of the conversation", ge=1)
    new_tokens: int = setting(100, "random ids that are new in each turn", ge=1)
    max_tokens: int = setting(16, "length of each answer, whatever the model would say", unit="tokens", ge=1)
    marks: _Marks = setting(
        (),
        "turns to report, with commas",
        metavar="N,N,...",
        reason=f"{','.join(map(str, USUAL_MARKS))} as far as there are so many, and the last one",
    )
    warm_up_turns: int = setting(
        1,
        "turns of other conversations that everybody plays before the first one",
        reason="files are read, threads start",
        ge=0,
    )
    rival: _Rivals = setting(
        (),
        "server with POST URL/completions; may be repeated. model=ID: its name for the model. context=N: most tokens "
        "of prompt and answer; the oldest after the first keep=N (4) are dropped then, drop=N at a time (half of the "
        "context). every=turn, or every=mark for one that keeps nothing from turn to turn. pid=N: its process, whose "
        "memory is reported; else the one that listens at the port. kv=N: most tokens that its KV holds. "
        "key-file=FILE: shown as bearer token",
        metavar="NAME=URL[,OPTION=VALUE...]",
    )
    fields: _Fields = setting(
        help="fields of a rival's requests over the usual ones, null for none; may be repeated",
        default_factory=dict,
        metavar="NAME=JSON",
    )
    at_least: _Factors = setting(
        help="claim that the rival's time to first token is at least so many times the runtime's at the last mark; may "
        "be repeated",
        default_factory=dict,
        metavar="NAME=FACTOR",
    )
    config: Path | None = setting(
        None,
        metavar="FILE",
        help="the model's config.json or its directory, for what a rival's KV weighs; else the installed model's",
    )
    checkpoint_s: float = setting(
        30.0,
        "between two reports of what there is so far",
        unit="seconds",
        reason="what is on disk outlives kill -9",
        ge=0,
        allow_inf_nan=False,
    )

    @model_validator(mode="after")
    def _usual_marks(self) -> Self:
        usual = (*(mark for mark in USUAL_MARKS if mark < self.turns), self.turns)
        self.marks = tuple(sorted(set(self.marks or usual)))
        if self.marks[-1] > self.turns:
            raise ValueError(f"--marks: there is no turn {self.marks[-1]} in {self.turns} turns")
        return self

    @model_validator(mode="after")
    def _known_rivals(self) -> Self:
        """Each has a name of its own, gets the fields of its requests, and can hold a turn."""
        names = [each.name for each in self.rival]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"--rival: {repeated[0]!r} is there twice")
        for flag, named in (("--fields", self.fields), ("--at-least", self.at_least)):
            if unknown := [name for name in named if name not in names]:
                raise ValueError(f"{flag}: there is no --rival {unknown[0]!r}")
        for each in self.rival:
            if each.context is not None and each.keep + self.new_tokens + self.max_tokens > each.context:
                raise ValueError(
                    f"--rival {each.name}: {each.keep} kept, {self.new_tokens} new and {self.max_tokens} tokens of an "
                    f"answer do not fit a context of {each.context}"
                )
        self.rival = tuple(each.model_copy(update={"fields": self.fields.get(each.name, {})}) for each in self.rival)
        return self

    def document(self) -> dict[str, object]:
        return super().document() | {
            "address": self.connection.address,
            "num_turns": self.turns,
            "num_new_tokens": self.new_tokens,
            "num_warm_up_turns": self.warm_up_turns,
        }
