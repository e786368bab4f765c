"""The messages of a chat, as OpenAI's API has them."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from kakeya_http_shim.requests.fields import INTEGRAL, RequestModel, known, without_effect

MAX_MESSAGES = 10_000
"""A template's time grows with them; far beyond any conversation that is sent whole."""


_MEDIA = known("image_url", "input_audio", "file", "video_url", "audio_url", why="contents are texts")


class Marked(RequestModel):
    """What Anthropic's clients put a mark on, which wanders from message to message as a conversation grows."""

    cache_control: dict[str, JsonValue] | None = without_effect(
        "what was said before is found again without it (Anthropic's)"
    )


class TextPart(Marked):
    """A part of a content; only text is served."""

    type: Annotated[Literal["text"], _MEDIA]
    text: str


class RefusalPart(Marked):
    """A part in which a model said no; to the chat template a text like any other."""

    type: Literal["refusal"]
    refusal: str


def _content_branch(content: Any) -> str:
    return "text_branch" if isinstance(content, str) else "parts_branch"


Content = Annotated[
    Annotated[str, Tag("text_branch")]
    | Annotated[list[TextPart], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), Tag("parts_branch")],
    Discriminator(_content_branch),
]


class FunctionCall(RequestModel):
    """What the model called, in an earlier turn."""

    name: str
    arguments: str
    parsed_arguments: JsonValue = Field(None, description="as openai-python's stream helper adds them; without effect")


class ToolCall(RequestModel):
    """A call of a tool, in an earlier turn."""

    id: str
    type: Literal["function"]
    function: FunctionCall
    index: Annotated[int, INTEGRAL] | None = Field(None, description="as streams have it; without effect")


def _part_branch(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
    return "refusal_branch" if kind == "refusal" else "text_part_branch"


AnswerPart = Annotated[
    Annotated[TextPart, Tag("text_part_branch")] | Annotated[RefusalPart, Tag("refusal_branch")],
    Discriminator(_part_branch),
]


def _answer_branch(content: Any) -> str:
    return "text_branch" if isinstance(content, str) else "answer_parts_branch"


AnswerContent = Annotated[
    Annotated[str, Tag("text_branch")]
    | Annotated[
        list[AnswerPart],
        Field(max_length=MAX_MESSAGES, fail_fast=True),
        Tag("answer_parts_branch"),
    ],
    Discriminator(_answer_branch),
]


class _Message(Marked):
    name: str | None = Field(None, description="handed to the chat template")


class SystemMessage(_Message):
    """Instructions; those at the beginning stay in sight for ever (pinned)."""

    role: Literal["system", "developer"]
    content: Content


class UserMessage(_Message):
    """What the person says."""

    role: Literal["user"]
    content: Content


class AssistantMessage(_Message):
    """What the model said."""

    role: Literal["assistant"]
    content: AnswerContent | None = None
    reasoning_content: str | None = Field(None, description="handed to the chat template")
    refusal: str | None = Field(
        None, description="to the chat template a text like any other, where there is no content"
    )
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_MESSAGES, fail_fast=True)] | None = None
    unfinished_call: str | None = Field(None, description="as an answer has it; without effect")
    provider_specific_fields: JsonValue = Field(None, description="as LiteLLM adds them; without effect")


class ToolMessage(_Message):
    """What a tool answered."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str


_BRANCHES = {
    "system": "system_branch",
    "developer": "system_branch",
    "user": "user_branch",
    "assistant": "assistant_branch",
    "tool": "tool_branch",
}


def _message_branch(given: Any) -> str:
    role = given.get("role") if isinstance(given, dict) else getattr(given, "role", None)
    return _BRANCHES.get(role, "") if isinstance(role, str) else ""


class FaultContext(dict[str, str]):
    """Of an error; hashable, as all must be that is part of a type in a union."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # each is itself


Message = Annotated[
    Annotated[SystemMessage, Tag("system_branch")]
    | Annotated[UserMessage, Tag("user_branch")]
    | Annotated[AssistantMessage, Tag("assistant_branch")]
    | Annotated[ToolMessage, Tag("tool_branch")],
    Discriminator(
        _message_branch,
        custom_error_type="at_fault",
        custom_error_message="{message}",
        custom_error_context=FaultContext(field="role", message=f"must be one of {', '.join(_BRANCHES)}"),
    ),
]

Messages = Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]


_FOR_CLIENTS = {"cache_control", "unfinished_call", "provider_specific_fields"}
"""What no template is told."""


def for_template(message: Message) -> dict[str, Any]:
    """A message as chat templates take it: the role `system` for instructions, and nothing in its content but text."""
    given = message.model_dump(exclude=_FOR_CLIENTS, exclude_none=True)
    given["content"] = _content(given.get("content") or given.pop("refusal", None) or given.get("content", []))
    if given["role"] == "developer":  # OpenAI's newer name for it, which templates do not know
        given["role"] = "system"
    if not given.get("tool_calls", True):
        del given["tool_calls"]
    for call in given.get("tool_calls", ()):
        call["function"].pop("parsed_arguments", None)
    return given


def _content(content: str | list[dict[str, str]]) -> str | list[dict[str, str]]:
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": part["text"] if part["type"] == "text" else part["refusal"]} for part in content]
