"""What a user asks of the bench: `kakeya bench compare --help`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from kakeya_bench.compare.rival import Rival, read_rivals
from kakeya_bench.conversation.settings import RuntimeSettings
from kakeya_shared.settings.service import Names, setting, split

SUMMARY = "the same conversation on this runtime and on other servers"
USUAL_MARKS = (1, 10, 50, 200)
_Marks = Annotated[tuple[Annotated[int, Field(ge=1)], ...], NoDecode, BeforeValidator(split)]


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


def _allowed(given: object) -> object:
    """FACTOR+MS, or FACTOR alone."""
    if not isinstance(given, str):
        return given
    factor, _, milliseconds = given.partition("+")
    return factor, milliseconds or 0.0


_Rivals = Annotated[tuple[Rival, ...], NoDecode, BeforeValidator(read_rivals)]
_Fields = Annotated[dict[str, dict[str, Any]], NoDecode, BeforeValidator(read_fields)]
_Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Factors = Annotated[dict[str, _Factor], NoDecode, BeforeValidator(_factors)]
_Allowance = tuple[_Factor, Annotated[float, Field(ge=0, allow_inf_nan=False)]]
_Allowances = Annotated[
    dict[str, Annotated[_Allowance, BeforeValidator(_allowed)]], NoDecode, BeforeValidator(_factors)
]


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
        "the rivals": "rival fields at_least at_most goes_on cpu_at_most config",
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
        "key-file=FILE: shown as bearer token. api=chat: POST URL/chat/completions, by OpenAI's client, which sends "
        "all messages each turn. api=responses: POST URL/responses, by the same client, which sends the new message "
        "behind previous_response_id. For both tokenizer=MODEL is the model's, and with messages=N it is also asked "
        "what a request of a conversation of so many costs its process",
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
    at_most: _Allowances = setting(
        help="claim that the rival's time to first token is at most so many times the runtime's, and so many "
        "milliseconds, at the median of the last ten turns; may be repeated",
        default_factory=dict,
        metavar="NAME=FACTOR[+MS]",
    )
    goes_on: Names = setting(
        (),
        "claim that each turn of a chat, or of responses, but its first goes on in its session, and that each appends "
        "its new tokens only; may be repeated",
        metavar="NAME,...",
    )
    cpu_at_most: _Factors = setting(
        help="claim that a request of messages=N takes so many milliseconds of processor time of the rival's process; "
        "may be repeated",
        default_factory=dict,
        metavar="NAME=MS",
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
        for flag, named, known in self._named():
            if unknown := [name for name in named if name not in known]:
                needed = "it needs api=chat or api=responses, or messages=N, of"
                what = needed if unknown[0] in names else "there is no"
                raise ValueError(f"{flag}: {what} --rival {unknown[0]!r}")
        for each in self.rival:
            if each.context is not None and each.keep + self.new_tokens + self.max_tokens > each.context:
                raise ValueError(
                    f"--rival {each.name}: {each.keep} kept, {self.new_tokens} new and {self.max_tokens} tokens of an "
                    f"answer do not fit a context of {each.context}"
                )
        self.rival = tuple(each.model_copy(update={"fields": self.fields.get(each.name, {})}) for each in self.rival)
        return self

    def _named(self) -> Iterator[tuple[str, Iterable[str], set[str]]]:
        """Flags that name rivals, those that each names, and those that it may."""
        every, of_texts = {each.name for each in self.rival}, {each.name for each in self.rival if each.says_texts}
        measured = {each.name for each in self.rival if each.messages}
        yield "--fields", self.fields, every
        yield "--at-least", self.at_least, every
        yield "--at-most", self.at_most, every
        yield "--goes-on", self.goes_on, of_texts
        yield "--cpu-at-most", self.cpu_at_most, measured

    def document(self) -> dict[str, object]:
        return super().document() | {
            "address": self.connection.address,
            "num_turns": self.turns,
            "num_new_tokens": self.new_tokens,
            "num_warm_up_turns": self.warm_up_turns,
        }
