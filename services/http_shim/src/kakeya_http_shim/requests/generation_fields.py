"""The fields that chats and completions share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag

from kakeya import Grammar
from kakeya_http_shim.requests.answer_format import AnswerFormat
from kakeya_http_shim.requests.fields import (
    INTEGRAL,
    OneOf,
    OnlyFalse,
    OnlyWith,
    Rule,
    RuledModel,
    at_fault,
    honoured,
    without_effect,
)
from kakeya_shared.contract.generation_limits import (
    MAX_GRAMMAR_BYTES,
    MAX_LOGIT_BIASES,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_STOP_SEQUENCES,
)

_MAX_BIAS = 100.0
MAX_STOPS = 16
_MAX_STOP_LETTERS = 1000
MAX_TOKEN_ID = (1 << 32) - 1
_MAX_DURATION_LETTERS = 64
_MAX_CHOICES = 4096  # a list of countries, or of a catalogue's parts
STOPS = f"up to {MAX_STOPS} texts (each is looked for at each letter), found across token borders, not in the answer"

NumTokens = Annotated[int, Field(ge=1, lt=1 << 32), INTEGRAL]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_STOP_LETTERS)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 32), INTEGRAL]
MetadataText = Annotated[str, StringConstraints(max_length=512)]
ChoiceText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_GRAMMAR_BYTES)]
GrammarText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_GRAMMAR_BYTES)]
LogitBias = Annotated[
    dict[
        Annotated[str, StringConstraints(pattern=r"^[0-9]{1,10}$")],
        Annotated[float, Field(ge=-_MAX_BIAS, le=_MAX_BIAS)],
    ],
    Field(max_length=MAX_LOGIT_BIASES, json_schema_extra={"additionalProperties": False}),
]


def _stop_branch(given: Any) -> str:
    return "text_branch" if isinstance(given, str) else "texts_branch"


Stop = Annotated[
    Annotated[StopText, Tag("text_branch")]
    | Annotated[list[StopText], Field(max_length=MAX_STOPS, fail_fast=True), Tag("texts_branch")],
    Discriminator(_stop_branch),
]


class StreamOptions(RuledModel):
    """How a stream is told."""

    include_usage: bool | None = honoured(None, "a last event with `usage`")
    continuous_usage_stats: bool | None = honoured(
        None, "`usage` in every event, of its answer so far; only with include_usage (vLLM's)"
    )
    include_obfuscation: OnlyFalse | None = without_effect("nothing is obfuscated")

    rules: ClassVar[Sequence[Rule]] = (OnlyWith("continuous_usage_stats", "include_usage"),)


class KakeyaOptions(RuledModel):
    """What OpenAI's API has no field for."""

    on_overflow: Literal["evict", "refuse"] | None = honoured(
        None,
        "what happens when the conversation outgrows its session: the oldest tokens behind the system prompt are "
        "forgotten, or the request fails with context_length_exceeded; the server's --on-overflow by default",
    )
    regex: GrammarText | None = honoured(
        None, "the answer matches it as a whole; of the three one at most (docs/structured-output.md)"
    )
    choice: Annotated[list[ChoiceText], Field(min_length=1, max_length=_MAX_CHOICES, fail_fast=True)] | None = honoured(
        None, "the answer is one of these texts"
    )
    grammar: GrammarText | None = honoured(None, "the answer is of this grammar, in llguidance's form of Lark")

    max_reasoning_tokens: NumTokens | None = honoured(
        None, "after so many tokens the model's thought ends, where it thinks before it answers"
    )

    rules: ClassVar[Sequence[Rule]] = (OneOf(("regex", "choice", "grammar"), is_needed=False),)

    @property
    def form(self) -> str:
        """The field that says what the answer is held to; "" where none does."""
        return next((name for name in ("regex", "choice", "grammar") if getattr(self, name) is not None), "")

    @property
    def held_to(self) -> Grammar | None:
        """None: to nothing."""
        if self.regex is not None:
            return Grammar.regex(self.regex)
        if self.choice is not None:
            return Grammar.choice(self.choice)
        return None if self.grammar is None else Grammar.lark(self.grammar)


@dataclass(frozen=True, slots=True)
class OneForm:
    """A rule: an answer has one form, by one of `kakeya`'s fields or by another.

    Attributes:
        field: the other one.
        formless: what it is where it says none, in JSON Schema.
    """

    field: str
    formless: Mapping[str, Any]

    def check(self, given: Any) -> None:
        """For a validator. Raises PydanticCustomError."""
        if given.is_held_twice:
            raise at_fault(self.field, "not together with kakeya.regex, kakeya.choice or kakeya.grammar")

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema, where null has no properties."""
        none = {"properties": {name: {"type": "null"} for name in ("regex", "choice", "grammar")}}
        return {"anyOf": [{"properties": {self.field: self.formless}}, {"properties": {"kakeya": none}}]}


_OF_TEXT: Final[Mapping[str, Any]] = {"properties": {"type": {"const": "text"}}}


class GenerationFields(RuledModel):
    """What chats and completions have in common."""

    model: ModelName | None = honoured(None, "may be left out where the runtime has a default")
    temperature: float | None = honoured(None, "0 to 2, 1 by default; 0 is greedy", ge=0, le=2)
    top_p: float | None = honoured(None, "above 0, up to 1, which is the default", gt=0, le=1)
    top_k: Annotated[int, Field(ge=0, le=MAX_TOKEN_ID), INTEGRAL] | None = honoured(
        None, "no limit by default (not OpenAI's)"
    )
    min_p: float | None = honoured(None, "0 to 1, no limit by default (not OpenAI's)", ge=0, le=1)
    presence_penalty: float | None = honoured(None, "-2 to 2, 0 by default", ge=-MAX_PENALTY, le=MAX_PENALTY)
    frequency_penalty: float | None = honoured(None, "-2 to 2, 0 by default", ge=-MAX_PENALTY, le=MAX_PENALTY)
    repetition_penalty: float | None = honoured(
        None,
        "above 0, up to 2, 1 by default: divides or multiplies what the answer has said already; what the prompt says "
        "is not counted, as it is in vLLM",
        gt=0,
        le=MAX_REPETITION_PENALTY,
    )
    logit_bias: LogitBias | None = honoured(None, "by token id of the model's tokenizer; -100 to 100")
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63), INTEGRAL] | None = honoured(
        None, "equal requests with equal seeds get equal answers, in exact mode to the last token"
    )
    stop: Stop | None = honoured(None, STOPS)
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_SEQUENCES, fail_fast=True)] | None = honoured(
        None, f"up to {MAX_STOP_SEQUENCES} ids that end the answer and are not in it, beside the model's own (vLLM's)"
    )
    ignore_eos: bool | None = honoured(
        None, "the tokens that end an answer by themselves are never chosen: it has max_tokens of them (vLLM's)"
    )
    min_tokens: Annotated[int, Field(ge=0, lt=1 << 32), INTEGRAL] | None = honoured(
        None, "until then nothing ends the answer, a stop text neither; at most max_tokens (vLLM's)"
    )
    n: Annotated[int, Field(ge=1, le=128), INTEGRAL] | None = honoured(
        None, "1 by default, at most the server's --max-choices"
    )
    stream: bool | None = honoured(None, "server-sent events, `[DONE]` at the end")
    stream_options: StreamOptions | None = honoured(None, "only with stream")
    response_format: AnswerFormat | None = honoured(
        None, "`text`, `json_object` or `json_schema`; see docs/structured-output.md"
    )
    kakeya: KakeyaOptions | None = honoured(None, "options that OpenAI's API has no field for")
    user: str | None = without_effect("nobody is told apart by it; keys do that")
    cache_prompt: bool | None = without_effect("chats go on in their sessions anyway (llama.cpp's)")
    keep_alive: Annotated[str, StringConstraints(max_length=_MAX_DURATION_LETTERS)] | float | None = without_effect(
        "models stay loaded, and sessions are kept as the server was told (Ollama's)"
    )

    rules: ClassVar[Sequence[Rule]] = (OnlyWith("stream_options", "stream"), OneForm("response_format", _OF_TEXT))

    @property
    def stop_texts(self) -> tuple[str, ...]:
        if isinstance(self.stop, str):
            return (self.stop,)
        return tuple(self.stop or ())

    @property
    def held_to(self) -> Grammar | None:
        """What the answer is held to; None: to nothing."""
        return self._format or (self.kakeya.held_to if self.kakeya else None)

    @property
    def form(self) -> str:
        """The field that says it."""
        return f"kakeya.{self.kakeya.form}" if self.kakeya and not self._format else "response_format"

    @property
    def is_held_twice(self) -> bool:
        """Two fields say it."""
        return bool(self._format and self.kakeya and self.kakeya.held_to)

    @property
    def _format(self) -> Grammar | None:
        return self.response_format.grammar if self.response_format else None

    @property
    def wished_bound(self) -> int | None:
        """Tokens after which a thought ends, if it can be ended; None: there is no such wish."""
        return None

    @property
    def tells_usage(self) -> bool:
        """Whether every event of a stream has `usage`."""
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)

    @property
    def num_choices(self) -> int:
        return self.n or 1

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with `usage`."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def biases(self) -> dict[int, float] | None:
        """Logit biases by token id."""
        return {int(token_id): bias for token_id, bias in self.logit_bias.items()} if self.logit_bias else None
