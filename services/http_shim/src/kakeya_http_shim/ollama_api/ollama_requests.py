"""The bodies of POST /api/chat, /api/generate and /api/show."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag

from kakeya_http_shim.ollama_api.durations import KeepAlive
from kakeya_http_shim.ollama_api.ollama_messages import OllamaMessages
from kakeya_http_shim.ollama_api.ollama_options import OllamaOptions
from kakeya_http_shim.requests.fields import (
    INTEGRAL,
    LATER,
    NotBoth,
    OnlyWith,
    Rule,
    RuledModel,
    at_fault,
    honoured,
    refusal,
    without_effect,
)
from kakeya_http_shim.requests.generation_fields import KakeyaOptions, ModelName, OneForm
from kakeya_http_shim.requests.tools import Tools
from kakeya_shared.contract.generation_limits import MAX_LOGPROBS

_FORMLESS: Final[Mapping[str, Any]] = {"enum": [None, ""]}
_NOT_DRAWN = "pictures are neither read nor drawn"


def _format_branch(given: Any) -> str:
    return "schema_branch" if isinstance(given, dict) else "text_branch"


Format = Annotated[
    Annotated[Literal["", "json"], Tag("text_branch")] | Annotated[dict[str, JsonValue], Tag("schema_branch")],
    Discriminator(_format_branch),
]


def _think_branch(given: Any) -> str:
    return "level_branch" if isinstance(given, str) else "switch_branch"


Think = Annotated[
    Annotated[bool, Tag("switch_branch")] | Annotated[Literal["low", "medium", "high", "max"], Tag("level_branch")],
    Discriminator(_think_branch),
]


def _only_empty(given: Any, why: str) -> Any:
    if isinstance(given, str) and given:
        raise refusal(why)
    return given


def _empty(why: str) -> BeforeValidator:
    """Of a text that clients send without one."""
    return BeforeValidator(lambda given: _only_empty(given, why))


class OllamaFields(RuledModel):
    """What chats and single prompts have in common."""

    model: ModelName = honoured(..., "`:latest` behind its name says nothing")
    stream: bool | None = honoured(None, "true by default: lines of JSON, the last of which has `done: true`")
    format: Format | None = honoured(
        None, '`"json"`, or a JSON schema, which the answer is held to; see docs/structured-output.md'
    )
    options: OllamaOptions | None = honoured(None, "see below")
    think: Think | None = honoured(
        None,
        "told to the chat template as `enable_thinking`, a level as `reasoning_effort`, too (`max` as `high`). By "
        "default the template decides. Refused where the model does not think",
    )
    keep_alive: KeepAlive | None = honoured(
        None,
        "seconds, or a text such as `5m`: idle time after which the session that the request begins is parked, the "
        "server's --session-park-after-seconds by default. 0: behind each answer; below 0: never. Models stay loaded",
    )
    truncate: bool | None = honoured(None, "false: what does not fit is refused (`kakeya.on_overflow: refuse`)")
    shift: bool | None = honoured(None, "false: the same")
    logprobs: bool | None = honoured(None, "log-probabilities of the raw logits, before temperature and penalties")
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS), INTEGRAL] | None = honoured(
        None, "with logprobs: that many of the likeliest tokens, 0 to 20"
    )
    kakeya: KakeyaOptions | None = honoured(None, "options that Ollama's API has no field for")

    rules: ClassVar[Sequence[Rule]] = (OnlyWith("top_logprobs", "logprobs"), OneForm("format", _FORMLESS))

    @property
    def streams(self) -> bool:
        return self.stream is not False

    @property
    def is_held_twice(self) -> bool:
        """Two fields say what form the answer has."""
        return bool(self.kakeya and self.kakeya.held_to) and self.format not in (None, "")

    @property
    def sampling(self) -> dict[str, object]:
        """As fields of a chat; None of what is not given."""
        return (self.options or OllamaOptions()).sampling


class OllamaChatRequest(OllamaFields):
    """A conversation, sent whole; the answer is its next message."""

    messages: OllamaMessages | None = honoured(
        None, "roles system, user, assistant and tool; without one the answer says that the model is loaded"
    )
    tools: Tools | None = honoured(
        None, "functions that the model may call, where its chat template writes them; see docs/tools.md"
    )


class OllamaGenerateRequest(OllamaFields):
    """A prompt to answer, which is no part of a conversation; raw, a text to go on with."""

    prompt: str | None = honoured(None, "without one the answer says that the model is loaded")
    system: str | None = honoured(None, "instructions before it")
    raw: bool | None = honoured(None, "the prompt is not written by the chat template")

    suffix: Annotated[Literal[""], _empty(LATER)] | None = without_effect("empty: nothing is inserted")
    template: Annotated[Literal[""], _empty("the model's own chat template is used")] | None = without_effect(
        "empty: the model's own is used"
    )

    rules: ClassVar[Sequence[Rule]] = (
        *OllamaFields.rules,
        *(NotBoth(name, "raw") for name in ("system", "think", "logprobs")),
    )
    refused: ClassVar[Mapping[str, str]] = {
        "context": "a conversation is sent whole, to /api/chat, and goes on in its session",
        "images": _NOT_DRAWN,
        "width": _NOT_DRAWN,
        "height": _NOT_DRAWN,
        "steps": _NOT_DRAWN,
    }


class NamesModel:
    """A rule: a model is named, by one of two fields."""

    def check(self, given: Any) -> None:
        """For a validator. Raises PydanticCustomError."""
        if given.model is None and given.name is None:
            raise at_fault("model", "name one")

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        named = ({"required": [name], "properties": {name: {"type": "string"}}} for name in ("model", "name"))
        return {"anyOf": list(named)}


class OllamaShowRequest(RuledModel):
    """A model that is to be described."""

    model: ModelName | None = honoured(None, "`:latest` behind its name says nothing")
    name: ModelName | None = honoured(None, "the older name of `model`, which counts before it")
    verbose: bool | None = without_effect("all that is known is told")

    rules: ClassVar[Sequence[Rule]] = (NamesModel(),)

    @property
    def wanted(self) -> str:
        """The name of the model."""
        return self.model or self.name or ""
