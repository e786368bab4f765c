"""The body of POST /v1/responses."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, StringConstraints, Tag

from kakeya_http_shim.requests.answer_format import JsonFormat, NamedSchema, TextFormat
from kakeya_http_shim.requests.chat_request import Effort
from kakeya_http_shim.requests.fields import (
    BRANCH,
    NotBoth,
    OnlyFalse,
    OnlyWith,
    RequestModel,
    Rule,
    RuledModel,
    honoured,
    known,
    refusal,
    without_effect,
)
from kakeya_http_shim.requests.generation_fields import (
    KakeyaOptions,
    LogitBias,
    MetadataText,
    ModelName,
    NumTokens,
    OneForm,
)
from kakeya_http_shim.responses_api.input_items import InputItems
from kakeya_http_shim.responses_api.responses_tools import (
    FunctionChoice,
    FunctionTool,
    OfferedFunction,
    OfferedTools,
    functions,
)
from kakeya_shared.contract.generation_limits import MAX_PENALTY

_OF_TEXT: Final[Mapping[str, Any]] = {
    "properties": {"format": {"anyOf": [{"type": "null"}, {"properties": {"type": {"const": "text"}}}]}}
}
_FORMS = ("json_object", "json_schema")
_NO_MODERATION = "nothing is moderated"


class NamedSchemaFormat(NamedSchema):
    """JSON that a schema accepts."""

    type: Literal["json_schema"]


def _format_branch(given: Any) -> str:
    kind = given.get("type") if isinstance(given, dict) else getattr(given, "type", None)
    return f"{kind if isinstance(kind, str) and kind in _FORMS else 'text'}{BRANCH}"


TextForm = Annotated[
    Annotated[TextFormat, Tag(f"text{BRANCH}")]
    | Annotated[JsonFormat, Tag(f"json_object{BRANCH}")]
    | Annotated[NamedSchemaFormat, Tag(f"json_schema{BRANCH}")],
    Discriminator(_format_branch),
]


class TextOptions(RequestModel):
    """What form the answer has."""

    format: TextForm | None = honoured(None, "`text`, `json_object` or `json_schema`; see docs/structured-output.md")
    verbosity: Annotated[Literal["medium"], known("low", "high", why="say it in a message")] | None = without_effect(
        "`medium`, which says nothing"
    )


class ReasoningOptions(RequestModel):
    """How the model thinks before it answers."""

    effort: Effort | None = honoured(
        None,
        "told to the chat template as `reasoning_effort`, and as `enable_thinking`, false for `none`; of the two those "
        "that it knows. Without effect where it knows neither: clients send it unasked",
    )
    summary: Literal["auto", "concise", "detailed"] | None = without_effect(
        "nothing summarizes a thought: it is told as it is, in the item's `content`"
    )
    generate_summary: Literal["auto", "concise", "detailed"] | None = without_effect("the older name of summary")


class StreamedOptions(RequestModel):
    """How a stream is told."""

    include_obfuscation: OnlyFalse | None = without_effect("nothing is obfuscated")


ConversationId = Annotated[str, StringConstraints(max_length=128)]
Included = Annotated[
    Literal[
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
        "file_search_call.results",
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "message.input_image.image_url",
    ],
    known("message.output_text.logprobs", why="chat completions have `logprobs`"),
]


def _input_branch(given: Any) -> str:
    return f"{'text' if isinstance(given, str) else 'items'}{BRANCH}"


class CompactionWish(RequestModel):
    """When a conversation is compacted."""

    type: Literal["compaction"]
    compact_threshold: NumTokens | None = honoured(
        None, "tokens of the conversation before the answer; without it those that a session of the model keeps"
    )


class NamedConversation(RequestModel):
    """A conversation, as the answer names it."""

    id: ConversationId


def _conversation_branch(given: Any) -> str:
    return f"{'id' if isinstance(given, str) else 'named'}{BRANCH}"


ConversationParam = Annotated[
    Annotated[ConversationId, Tag(f"id{BRANCH}")] | Annotated[NamedConversation, Tag(f"named{BRANCH}")],
    Discriminator(_conversation_branch),
]
Input = Annotated[
    Annotated[str, Tag(f"text{BRANCH}")] | Annotated[InputItems, Tag(f"items{BRANCH}")],
    Discriminator(_input_branch),
]


def _never(given: Any) -> Any:
    if given is True:
        raise refusal("an answer is given to the request that asks for it; `stream` tells it as it comes")
    return given


class ResponsesRequest(RuledModel):
    """A conversation, or what is new of one; the answer is what follows."""

    model: ModelName | None = honoured(
        None, "may be left out where the runtime has a default; --model-alias serves names of other models"
    )
    input: Input | None = honoured(
        None, "a text, which the user says, or the items of the conversation; contents of text"
    )
    instructions: str | None = honoured(
        None, "a system message before all items; those of a previous response do not count"
    )
    previous_response_id: Annotated[str, StringConstraints(max_length=128)] | None = honoured(
        None, "of a response that is stored: its items, and those of its answer, come before those of `input`"
    )
    conversation: ConversationParam | None = honoured(
        None,
        "a conversation of /v1/conversations, by its id or as an object: its items come before those of `input`, and "
        "these and the answer's are its items once the answer has come to its end; not with previous_response_id",
    )
    store: bool | None = honoured(
        None,
        "true by default: the response and its items are kept for a day, and can be gone on from. A server may keep "
        "none, or for another time (--stored-responses, --response-ttl-seconds); the answer says whether it is kept",
    )
    max_output_tokens: NumTokens | None = honoured(
        None, "the server's --default-max-tokens by default, at most its --max-answer-tokens; thoughts included"
    )
    temperature: float | None = honoured(None, "0 to 2, 1 by default; 0 is greedy", ge=0, le=2)
    top_p: float | None = honoured(None, "above 0, up to 1, which is the default", gt=0, le=1)
    presence_penalty: float | None = honoured(None, "-2 to 2, 0 by default", ge=-MAX_PENALTY, le=MAX_PENALTY)
    frequency_penalty: float | None = honoured(None, "-2 to 2, 0 by default", ge=-MAX_PENALTY, le=MAX_PENALTY)
    logit_bias: LogitBias | None = honoured(None, "by token id of the model's tokenizer; -100 to 100 (vLLM's)")
    ignore_eos: bool | None = honoured(
        None, "the tokens that end an answer by themselves are never chosen: it has max_output_tokens of them (vLLM's)"
    )
    tools: OfferedTools | None = honoured(
        None,
        "functions that the model may call, by themselves or in namespaces, where its chat template writes them; see "
        "docs/tools.md. A web search is taken and not offered to the model; all others are refused by name",
    )
    tool_choice: FunctionChoice | None = honoured(
        None,
        "`auto` by default; `none`: the model is told of the tools, and what looks like a call in its answer is text; "
        "`required`, or a function: the answer is nothing but calls, each held to its tool's schema",
    )
    parallel_tool_calls: bool | None = honoured(None, "true by default; false: the answer ends with its first call")
    text: TextOptions | None = honoured(None, "see below")
    reasoning: ReasoningOptions | None = honoured(None, "see below")
    truncation: Literal["auto", "disabled"] | None = honoured(
        None,
        "`auto`: the oldest tokens behind the instructions are forgotten; `disabled`: what does not fit is refused. As "
        "kakeya.on_overflow says it, which counts before; the server's --on-overflow by default",
    )
    stream: bool | None = honoured(None, "server-sent events, each with its name, `[DONE]` at the end")
    stream_options: StreamedOptions | None = without_effect(
        "only with stream; `include_obfuscation` can only be false: nothing is obfuscated"
    )
    metadata: Annotated[dict[str, MetadataText], Field(max_length=16)] | None = honoured(
        None, "up to 16 texts of 512 letters, which the answer says again"
    )
    kakeya: KakeyaOptions | None = honoured(None, "options that OpenAI's API has no field for")

    background: Annotated[OnlyFalse, BeforeValidator(_never)] | None = without_effect("an answer is given at once")
    include: Annotated[list[Included], Field(max_length=64, fail_fast=True)] | None = honoured(
        None,
        "`reasoning.encrypted_content`: a thought comes as it is, and encrypted beside that, for clients that send it "
        "back so; it need not come back. The others are of tools that do not run here",
    )
    context_management: Annotated[list[CompactionWish], Field(max_length=1, fail_fast=True)] | None = honoured(
        None,
        "one entry: where the conversation has more tokens than that, its answer begins with a `compaction` item, "
        "which may be sent in the place of all that was before it",
    )
    max_tool_calls: NumTokens | None = without_effect("it counts calls of tools that run at the server: there are none")
    prompt_cache_key: str | None = without_effect("a conversation is found by its items")
    client_metadata: dict[str, JsonValue] | None = without_effect("nobody is told apart by it; keys do that")
    safety_identifier: str | None = without_effect("nobody is told apart by it")
    user: str | None = without_effect("nobody is told apart by it; keys do that")
    service_tier: (
        Annotated[Literal["auto", "default"], known("flex", "scale", "priority", why="there is one")] | None
    ) = without_effect("`auto` or `default`: there is one")

    rules: ClassVar[Sequence[Rule]] = (
        OnlyWith("stream_options", "stream"),
        NotBoth("previous_response_id", "conversation"),
        OfferedFunction(),
        OneForm("text", _OF_TEXT),
    )
    refused: ClassVar[Mapping[str, str]] = {
        "prompt": "no prompts are stored; send instructions and input",
        "top_logprobs": "chat completions have `logprobs`",
        "prompt_cache_retention": "sessions are kept as the server was told (--session-close-after-seconds)",
        "prompt_cache_options": "sessions are kept as the server was told (--session-close-after-seconds)",
        "background_options": "an answer is given at once",
        "moderation": _NO_MODERATION,
        "image": "answers are text",
        "messages": "not of this API; input is",
        "max_tokens": "max_output_tokens is its name here",
        "response_format": "text.format is its name here",
        "stop": "not of this API; chat completions have it",
    }

    @property
    def conversation_id(self) -> str | None:
        """Of the conversation that it is in, if it is in one."""
        return self.conversation.id if isinstance(self.conversation, NamedConversation) else self.conversation

    @property
    def includes_encrypted_thoughts(self) -> bool:
        """Thoughts come encrypted, too."""
        return "reasoning.encrypted_content" in (self.include or ())

    @property
    def functions(self) -> list[FunctionTool]:
        """The tools that the model is told of."""
        return functions(self.tools or ())

    @property
    def is_held_twice(self) -> bool:
        """Two fields say what form the answer has."""
        return self.response_format is not None and self.kakeya is not None and self.kakeya.held_to is not None

    @property
    def response_format(self) -> dict[str, Any] | None:
        """The form of the answer, as chat completions say it; None: it is text."""
        form = self.text.format if self.text else None
        match form:
            case NamedSchemaFormat():
                named = form.model_dump(by_alias=True, exclude_none=True, exclude={"type"})
                return {"type": "json_schema", "json_schema": named}
            case JsonFormat():
                return {"type": "json_object"}
        return None

    @property
    def on_overflow(self) -> Literal["evict", "refuse"] | None:
        """What happens when the conversation outgrows its session, if the request says so."""
        if self.kakeya is not None and self.kakeya.on_overflow is not None:
            return self.kakeya.on_overflow
        if self.truncation is None:
            return None
        return "evict" if self.truncation == "auto" else "refuse"
