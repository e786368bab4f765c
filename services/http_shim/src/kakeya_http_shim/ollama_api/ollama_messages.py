"""The messages of a chat, as Ollama's API has them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from kakeya_http_shim.requests.fields import INTEGRAL, RequestModel, honoured, without_effect
from kakeya_http_shim.requests.messages import MAX_MESSAGES, FaultContext

_TEXTS = "contents are texts"


class OllamaFunctionCall(RequestModel):
    """What was called, and with what."""

    name: str
    arguments: dict[str, JsonValue]
    index: Annotated[int, INTEGRAL] | None = without_effect("calls are in order")


class OllamaCall(RequestModel):
    """A call of a tool, in an earlier turn."""

    function: OllamaFunctionCall
    id: str | None = honoured(None, "handed to the chat template; a number where there is none")
    type: Literal["function"] | None = without_effect("there is one")


class _OllamaMessage(RequestModel):
    content: str | None = None

    refused: ClassVar[Mapping[str, str]] = {"images": _TEXTS}


class OllamaSystemMessage(_OllamaMessage):
    """Instructions; those at the beginning stay in sight for ever (pinned)."""

    role: Literal["system"]


class OllamaUserMessage(_OllamaMessage):
    """What the person says."""

    role: Literal["user"]


class OllamaAssistantMessage(_OllamaMessage):
    """What the model said; the last one is gone on with."""

    role: Literal["assistant"]
    thinking: str | None = Field(None, description="handed to the chat template")
    tool_calls: Annotated[list[OllamaCall], Field(max_length=MAX_MESSAGES, fail_fast=True)] | None = None
    unfinished_call: str | None = Field(None, description="as an answer has it; without effect")


class OllamaToolMessage(_OllamaMessage):
    """What a tool answered: the call that it names, or the first of its tool's that has no answer yet."""

    role: Literal["tool"]
    tool_name: str | None = Field(None, description="handed to the chat template")
    name: str | None = Field(None, description="the older name of tool_name")
    tool_call_id: str | None = None


_BRANCHES = {
    "system": "system_branch",
    "user": "user_branch",
    "assistant": "assistant_branch",
    "tool": "tool_branch",
}


def _branch(given: Any) -> str:
    role = given.get("role") if isinstance(given, dict) else getattr(given, "role", None)
    return _BRANCHES.get(role, "") if isinstance(role, str) else ""


OllamaMessage = Annotated[
    Annotated[OllamaSystemMessage, Tag("system_branch")]
    | Annotated[OllamaUserMessage, Tag("user_branch")]
    | Annotated[OllamaAssistantMessage, Tag("assistant_branch")]
    | Annotated[OllamaToolMessage, Tag("tool_branch")],
    Discriminator(
        _branch,
        custom_error_type="at_fault",
        custom_error_message="{message}",
        custom_error_context=FaultContext(field="role", message=f"must be one of {', '.join(_BRANCHES)}"),
    ),
]
OllamaMessages = Annotated[list[OllamaMessage], Field(max_length=MAX_MESSAGES, fail_fast=True)]
