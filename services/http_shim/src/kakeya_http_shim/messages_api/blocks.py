"""The messages of Anthropic's API, and the blocks that their contents are made of."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from kakeya_http_shim.requests.fields import LATER, RequestModel, known, without_effect
from kakeya_http_shim.requests.messages import MAX_MESSAGES, FaultContext, Marked

_MEDIA = known("image", "document", "file", "search_result", "container_upload", why="contents are texts")
_OF_SERVER_TOOLS = known(
    *("server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
    *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result"),
    *("tool_reference", "mcp_tool_use", "mcp_tool_result", "advisor_tool_result"),
    why="no tool runs at this server",
)
_NOT_YET = known("mid_conv_system", "compaction", "fallback", why=LATER)


class TextBlock(Marked):
    """A text; the only kind of content that is served."""

    type: Annotated[Literal["text"], _MEDIA, _OF_SERVER_TOOLS, _NOT_YET]
    text: str

    refused: ClassVar[Mapping[str, str]] = {"citations": "nothing is cited"}


class ThinkingBlock(Marked):
    """What the model thought; handed to the chat template."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = without_effect("thoughts are taken with any signature")


class RedactedThinkingBlock(Marked):
    """Thoughts that another server has hidden; left out."""

    type: Literal["redacted_thinking"]
    data: str | None = without_effect("nobody but that server can read it")


class ToolUseBlock(Marked):
    """A call of a tool, in an earlier turn."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, JsonValue]
    caller: dict[str, JsonValue] | None = without_effect("tools are called by the model alone")


def _text_branch(content: Any) -> str:
    return "text_branch" if isinstance(content, str) else "blocks_branch"


Texts = Annotated[
    Annotated[str, Tag("text_branch")]
    | Annotated[list[TextBlock], Field(max_length=MAX_MESSAGES, fail_fast=True), Tag("blocks_branch")],
    Discriminator(_text_branch),
]


class ToolReferenceBlock(Marked):
    """A tool that the client has found among those with `defer_loading`: the model is told of it here."""

    type: Literal["tool_reference"]
    tool_name: str


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else getattr(block, "type", None)


def _result_branch(block: Any) -> str:
    return "tool_reference_branch" if _kind(block) == "tool_reference" else "text_block_branch"


ResultBlock = Annotated[
    Annotated[TextBlock, Tag("text_block_branch")] | Annotated[ToolReferenceBlock, Tag("tool_reference_branch")],
    Discriminator(_result_branch),
]
Results = Annotated[
    Annotated[str, Tag("text_branch")]
    | Annotated[list[ResultBlock], Field(max_length=MAX_MESSAGES, fail_fast=True), Tag("blocks_branch")],
    Discriminator(_text_branch),
]


class ToolResultBlock(Marked):
    """What a tool answered."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Results | None = None
    is_error: bool | None = without_effect("what went wrong stands in the content, and chat templates know no more")


def _user_branch(block: Any) -> str:
    return "tool_result_branch" if _kind(block) == "tool_result" else "text_block_branch"


_ANSWER_BRANCHES = {
    "thinking": "thinking_branch",
    "redacted_thinking": "redacted_branch",
    "tool_use": "tool_use_branch",
}


def _answer_branch(block: Any) -> str:
    kind = _kind(block)
    return _ANSWER_BRANCHES.get(kind, "text_block_branch") if isinstance(kind, str) else "text_block_branch"


UserBlock = Annotated[
    Annotated[TextBlock, Tag("text_block_branch")] | Annotated[ToolResultBlock, Tag("tool_result_branch")],
    Discriminator(_user_branch),
]
AnswerBlock = Annotated[
    Annotated[TextBlock, Tag("text_block_branch")]
    | Annotated[ThinkingBlock, Tag("thinking_branch")]
    | Annotated[RedactedThinkingBlock, Tag("redacted_branch")]
    | Annotated[ToolUseBlock, Tag("tool_use_branch")],
    Discriminator(_answer_branch),
]
UserContent = Annotated[
    Annotated[str, Tag("text_branch")]
    | Annotated[list[UserBlock], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), Tag("blocks_branch")],
    Discriminator(_text_branch),
]
AnswerContent = Annotated[
    Annotated[str, Tag("text_branch")]
    | Annotated[list[AnswerBlock], Field(max_length=MAX_MESSAGES, fail_fast=True), Tag("blocks_branch")],
    Discriminator(_text_branch),
]


class UserTurn(Marked):
    """What the person says, and what tools answered."""

    role: Literal["user"]
    content: UserContent


class AssistantTurn(Marked):
    """What the model said; the last one is gone on with."""

    role: Literal["assistant"]
    content: AnswerContent


class TurnOutput(RequestModel):
    """How the model answers from here on."""

    effort: str | None = without_effect("the effort of the whole request counts")


class SystemTurn(Marked):
    """Instructions within a conversation."""

    role: Literal["system"]
    content: Texts
    output_config: TurnOutput | None = None


_BRANCHES = {"user": "user_branch", "assistant": "assistant_branch", "system": "system_branch"}


def _turn_branch(given: Any) -> str:
    role = given.get("role") if isinstance(given, dict) else getattr(given, "role", None)
    return _BRANCHES.get(role, "") if isinstance(role, str) else ""


Turn = Annotated[
    Annotated[UserTurn, Tag("user_branch")]
    | Annotated[AssistantTurn, Tag("assistant_branch")]
    | Annotated[SystemTurn, Tag("system_branch")],
    Discriminator(
        _turn_branch,
        custom_error_type="at_fault",
        custom_error_message="{message}",
        custom_error_context=FaultContext(field="role", message=f"must be one of {', '.join(_BRANCHES)}"),
    ),
]
Turns = Annotated[list[Turn], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
