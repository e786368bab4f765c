"""The body of POST /v1/chat/completions."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from kakeya_http_shim.requests.fields import (
    BRANCH,
    INTEGRAL,
    LATER,
    OnlyWith,
    RequestModel,
    Rule,
    at_fault,
    honoured,
    known,
    without_effect,
)
from kakeya_http_shim.requests.generation_fields import STOPS, GenerationFields, MetadataText, NumTokens, Stop
from kakeya_http_shim.requests.messages import Messages
from kakeya_http_shim.requests.refused_fields import OF_PEERS
from kakeya_http_shim.requests.template_fields import TemplateFields
from kakeya_http_shim.requests.tools import ToolName
from kakeya_shared.contract.generation_limits import MAX_LOGPROBS

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks; chat templates know some of these, and say what they make of the others."""


class NamedFunction(RequestModel):
    """Which one."""

    name: ToolName = honoured(..., "of one of `tools`")


class NamedTool(RequestModel):
    """A tool that has to be called."""

    type: Annotated[Literal["function"], known("allowed_tools", "custom", why="a function can be forced, or any")]
    function: NamedFunction = honoured(..., "the one")


def _choice_branch(given: Any) -> str:
    return f"{'named' if isinstance(given, dict | NamedTool) else 'text'}{BRANCH}"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(f"text{BRANCH}")] | Annotated[NamedTool, Tag(f"named{BRANCH}")],
    Discriminator(_choice_branch),
]


class OfferedChoice:
    """A rule: a call can be forced of what is offered."""

    def check(self, given: Any) -> None:
        """For a validator. Raises PydanticCustomError."""
        names = {tool.function.name for tool in given.tools or ()}
        if given.forces_call and not names:
            raise at_fault("tool_choice", "there are no tools to call")
        if given.forced_tool is not None and given.forced_tool not in names:
            raise at_fault("tool_choice", f"there is no tool {given.forced_tool}")

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema, which does not say that a name is that of a tool."""
        is_free = {"properties": {"tool_choice": {"enum": [None, "none", "auto"]}}}
        has_tools = {"properties": {"tools": {"type": "array", "minItems": 1}}, "required": ["tools"]}
        return {"anyOf": [is_free, has_tools]}


class ChatRequest(GenerationFields, TemplateFields):
    """A conversation, sent whole; the answer is its next message."""

    messages: Messages = honoured(..., "roles system, developer, user, assistant and tool; contents of text")
    max_tokens: NumTokens | None = honoured(
        None, "the server's --default-max-tokens by default, at most its --max-answer-tokens"
    )
    max_completion_tokens: NumTokens | None = honoured(
        None, "the newer name of max_tokens; where both are given, the smaller holds"
    )
    stop: Stop | None = honoured(
        None,
        f"{STOPS}; they are for the answer only: what a model thinks before it, in `reasoning_content`, may hold them",
    )
    logprobs: bool | None = honoured(None, "log-probabilities of the raw logits, before temperature and penalties")
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS), INTEGRAL] | None = honoured(
        None, "with logprobs: that many of the likeliest tokens, 0 to 20"
    )

    tool_choice: ToolChoice | None = honoured(
        None,
        "`auto` by default; `none`: the model is told of the tools, and what looks like a call in its answer is text; "
        "`required`, or a function: the answer is nothing but calls, each held to its tool's schema",
    )
    parallel_tool_calls: bool | None = honoured(None, "true by default; false: the answer ends with its first call")

    reasoning_effort: Effort | None = honoured(
        None,
        "told to the chat template as `reasoning_effort`, and as `enable_thinking`, false for `none`; of the two those "
        "that it knows. Without effect where it knows neither: clients send it unasked",
    )
    enable_thinking: bool | None = honoured(
        None, "told to the chat template where it knows that; counts before reasoning_effort (Qwen's)"
    )
    thinking_budget: NumTokens | None = honoured(
        None,
        "as kakeya.max_reasoning_tokens, which counts before it; without effect where the marks of thoughts are no "
        "tokens of the model (Qwen's)",
    )

    metadata: Annotated[dict[str, MetadataText], Field(max_length=16)] | None = without_effect("nothing is stored")
    store: bool | None = without_effect("nothing is stored: an answer cannot be asked for later")
    service_tier: (
        Annotated[Literal["auto", "default"], known("flex", "scale", "priority", why="there is one")] | None
    ) = without_effect("`auto` or `default`: there is one")
    modalities: list[Annotated[Literal["text"], known("audio", why="answers are text")]] | None = without_effect(
        "`[text]`: answers are text"
    )
    prompt_cache_key: str | None = without_effect("a conversation is found by its messages")
    safety_identifier: str | None = without_effect("nobody is told apart by it")

    rules: ClassVar[Sequence[Rule]] = (
        *GenerationFields.rules,
        *TemplateFields.rules,
        OnlyWith("top_logprobs", "logprobs"),
        OfferedChoice(),
    )
    refused: ClassVar[Mapping[str, str]] = OF_PEERS | {
        "functions": "superseded by tools",
        "function_call": "superseded by tool_choice",
        "reasoning": "reasoning_effort is its name here, and kakeya.max_reasoning_tokens bounds thoughts",
        "thinking_token_budget": "kakeya.max_reasoning_tokens is its name here",
        "thinking_budget_tokens": "kakeya.max_reasoning_tokens is its name here",
        "verbosity": "say it in a message",
        "audio": "answers are text",
        "prediction": LATER,
        "web_search_options": "nothing is searched",
        "prompt_cache_retention": "sessions are kept as the server was told (--session-close-after-seconds)",
        "best_of": "not of this API",
        "echo": "not of this API; continue_final_message goes on with a message",
    }

    @property
    def longest_answer(self) -> int | None:
        """Tokens; None where none was named."""
        given = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None]
        return min(given, default=None)

    @property
    def wished_bound(self) -> int | None:
        return self.thinking_budget

    @property
    def forces_call(self) -> bool:
        """Whether the answer has to call tools."""
        return self.tool_choice is not None and self.tool_choice not in ("none", "auto")

    @property
    def is_strict(self) -> bool:
        """Whether it is free to call, and what it calls is held to a schema where its tool says so."""
        is_free = self.tool_choice in (None, "auto") and self.held_to is None
        return is_free and any(tool.function.strict for tool in self.tools or ())

    @property
    def forced_tool(self) -> str | None:
        """The tool that has to be called; None: none by name."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None

    @property
    def num_logprobs(self) -> int | None:
        """How many likeliest ids come with each token; None: no log-probabilities at all."""
        return (self.top_logprobs or 0) if self.logprobs else None
