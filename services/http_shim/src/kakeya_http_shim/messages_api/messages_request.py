"""The bodies of POST /v1/messages and of POST /v1/messages/count_tokens."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from kakeya_http_shim.messages_api.blocks import Texts, Turns
from kakeya_http_shim.messages_api.messages_tools import CustomTools, OfferedChoice, ToolChoice
from kakeya_http_shim.requests.fields import INTEGRAL, RequestModel, Rule, RuledModel, honoured, known, without_effect
from kakeya_http_shim.requests.generation_fields import (
    MAX_STOPS,
    MAX_TOKEN_ID,
    STOPS,
    KakeyaOptions,
    ModelName,
    NumTokens,
    OneForm,
    StopText,
)

_NOTHING_IS_RUN = "nothing is run at this server, and no other one is asked"


class Thinking(RequestModel):
    """Whether the model thinks before it answers."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"] = honoured(
        ..., "`enable_thinking` of the model's chat template: false where it is `disabled`"
    )
    display: Literal["summarized", "omitted"] | None = honoured(
        None, "`omitted`: blocks of thoughts have no text; otherwise all of it, for nothing summarizes it"
    )
    budget_tokens: NumTokens | None = honoured(
        None,
        "after so many tokens the model's thought ends, unless kakeya.max_reasoning_tokens says otherwise; without "
        "effect where the marks of its thoughts are no tokens",
    )


class JsonOutput(RequestModel):
    """JSON that a schema accepts."""

    type: Literal["json_schema"]
    schema_: dict[str, JsonValue] = Field(
        alias="schema",
        description="what of it cannot be held to is refused by name; the model is not told of it",
        json_schema_extra={"x-kakeya": "honoured"},
    )


class OutputConfig(RequestModel):
    """How the model answers."""

    format: JsonOutput | None = honoured(None, "the form that the answer is held to; see docs/structured-output.md")

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = honoured(
        None, "`reasoning_effort` of the model's chat template; without effect where it does not know that"
    )

    refused: ClassVar[Mapping[str, str]] = {"task_budget": "max_tokens bounds an answer"}


class MessagesFields(RuledModel):
    """What makes a prompt."""

    model: ModelName | None = honoured(
        None, "may be left out where the runtime has a default; --model-alias serves names of other models"
    )
    messages: Turns = honoured(
        ...,
        "roles user, assistant and system. Turns of one role in a row are one. A last one of the assistant's is gone "
        "on with, unless it has no text",
    )
    system: Texts | None = honoured(
        None, "pinned: it stays in sight for ever. Lines for Anthropic's books are left out (docs/messages.md)"
    )
    tools: CustomTools | None = honoured(
        None, "that the client runs, where the model's chat template writes them; see docs/tools.md"
    )
    tool_choice: ToolChoice | None = honoured(None, "see below")
    thinking: Thinking | None = honoured(
        None, "without it a model whose chat template knows `enable_thinking` is told not to, as Anthropic's are"
    )

    cache_control: dict[str, JsonValue] | None = without_effect("what was said before is found again without it")
    output_config: OutputConfig | None = honoured(None, "see below")
    context_management: dict[str, JsonValue] | None = without_effect(
        "the oldest tokens are forgotten by themselves; the answer says that no edit was applied"
    )
    speed: Annotated[Literal["standard"], known("fast", why="there is one")] | None = without_effect("there is one")

    user_profile_id: str | None = without_effect("nobody is told apart by it; keys do that")
    workspace_id: str | None = without_effect("nobody is told apart by it; keys do that")

    rules: ClassVar[Sequence[Rule]] = (OfferedChoice(),)
    refused: ClassVar[Mapping[str, str]] = {
        "compaction": "the oldest tokens are forgotten by themselves",
        "thread": "conversations are sent whole",
        "billing_policy": "nothing is billed",
        "mcp_servers": _NOTHING_IS_RUN,
        "container": _NOTHING_IS_RUN,
        "output_format": "output_config.format is its name here",
        "max_completion_tokens": "not of this API; max_tokens is",
        "stop": "stop_sequences is its name here",
    }

    @property
    def output_schema(self) -> dict[str, JsonValue] | None:
        """That the answer is held to."""
        return self.output_config.format.schema_ if self.output_config and self.output_config.format else None

    @property
    def thinks(self) -> bool:
        """Whether the model is to think."""
        return self.thinking is not None and self.thinking.type != "disabled"


class CountTokensRequest(MessagesFields):
    """Messages whose tokens are counted, and not answered."""


class MessagesRequest(MessagesFields):
    """Messages, sent whole; the answer is the next one."""

    max_tokens: NumTokens = honoured(..., "of the answer, thoughts included; at most the server's --max-answer-tokens")
    stop_sequences: Annotated[list[StopText], Field(max_length=MAX_STOPS, fail_fast=True)] | None = honoured(
        None, STOPS
    )
    temperature: float | None = honoured(None, "0 to 2, 1 by default; 0 is greedy", ge=0, le=2)
    top_p: float | None = honoured(None, "above 0, up to 1, which is the default", gt=0, le=1)
    top_k: Annotated[int, Field(ge=0, le=MAX_TOKEN_ID), INTEGRAL] | None = honoured(None, "no limit by default")
    stream: bool | None = honoured(None, "server-sent events")
    kakeya: KakeyaOptions | None = honoured(None, "options that Anthropic's API has no field for")

    metadata: dict[str, JsonValue] | None = without_effect("nobody is told apart by it; keys do that")
    service_tier: Literal["auto", "standard_only"] | None = without_effect("there is one")
    diagnostics: dict[str, JsonValue] | None = without_effect("`usage` and `Kakeya-Session` say what was reused")

    rules: ClassVar[Sequence[Rule]] = (
        *MessagesFields.rules,
        OneForm("output_config", {"properties": {"format": {"type": "null"}}}),
    )
    refused: ClassVar[Mapping[str, str]] = {
        **MessagesFields.refused,
        "inference_geo": "answers come from where this server's workers are",
        "fallbacks": "no other model answers instead",
        "fallback_credit_token": "no other model answers instead",
    }

    @property
    def is_held_twice(self) -> bool:
        """Two fields say what form the answer has."""
        return self.output_schema is not None and self.kakeya is not None and self.kakeya.held_to is not None

    @property
    def hides_thoughts(self) -> bool:
        """Whether blocks of thoughts come without their text."""
        return self.thinking is not None and self.thinking.display == "omitted"
