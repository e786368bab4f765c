"""The items of a conversation, as a request of `/v1/responses` sends them."""

from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from kakeya_http_shim.requests.fields import BRANCH, LATER, RequestModel, honoured, known_by_reason, without_effect
from kakeya_http_shim.requests.messages import MAX_MESSAGES, FaultContext
from kakeya_http_shim.responses_api.content_parts import InputContent, OutputContent, ResultContent, ThoughtPart

_UNSERVED = known_by_reason(
    {
        "no tool runs at this server": (
            *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call"),
            *("mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "tool_search_call"),
            *("computer_call_output", "tool_search_output", "additional_tools", "program", "program_output"),
        ),
        "functions are called": (
            *("local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output"),
            *("apply_patch_call", "apply_patch_call_output", "custom_tool_call", "custom_tool_call_output"),
        ),
        "send the item itself": ("item_reference",),
        LATER: ("compaction_trigger", "context_compaction", "configuration_update"),
    }
)

MAX_COMPACTED_LETTERS: Final = 10_485_760
"""As Open Responses has it."""

ItemStatus = Literal["in_progress", "completed", "incomplete"]
_ID = "what was said counts, whatever its id"
_STATUS = "what is there counts"


class Item(RequestModel):
    """What all items have."""

    id: str | None = without_effect(_ID)
    status: ItemStatus | None = without_effect(_STATUS)


class UserItem(Item):
    """What the person says."""

    type: Annotated[Literal["message"], _UNSERVED] | None = None
    role: Literal["user"]
    content: InputContent


class InstructionItem(Item):
    """Instructions; those at the beginning stay in sight for ever (pinned)."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer"]
    content: InputContent


class AnswerItem(Item):
    """What the model said."""

    type: Literal["message"] | None = None
    role: Literal["assistant"]
    content: OutputContent
    phase: Literal["commentary", "final_answer"] | None = without_effect("chat templates have no place for it")


class FunctionCallItem(Item):
    """A call of a function, in an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | None = Field(None, description="that it was offered in")
    arguments: str
    parsed_arguments: JsonValue = without_effect("as openai-python's `parse` adds them")


class FunctionResultItem(Item):
    """What a function answered."""

    type: Literal["function_call_output"]
    call_id: str
    output: ResultContent
    name: str | None = without_effect("the call has its name")


class ReasoningItem(Item):
    """What the model thought before an earlier answer; no conversation is told from another by it."""

    type: Literal["reasoning"]
    content: Annotated[list[ThoughtPart], Field(max_length=MAX_MESSAGES, fail_fast=True)] | None = None
    summary: list[JsonValue] | None = without_effect("a thought itself is more than its summary")
    encrypted_content: str | None = without_effect("nobody but the server that made it can read it")


class CompactionItem(RequestModel):
    """All that was said before it, as /v1/responses/compact gave it; what else comes before it is passed over."""

    type: Literal["compaction"]
    id: str | None = without_effect(_ID)
    encrypted_content: Annotated[str, Field(max_length=MAX_COMPACTED_LETTERS)] = honoured(
        ..., "as this server, or another one with its key, gave it"
    )
    created_by: str | None = without_effect("nobody but this server can have made it")


_BRANCHES: Final = {
    "compaction": "compaction",
    "function_call": "call",
    "function_call_output": "result",
    "reasoning": "reasoning",
}
_ROLES: Final = {"user": "user", "system": "instruction", "developer": "instruction", "assistant": "answer"}


def _branch(item: Any) -> str:
    """By its type; of a message, and of what has none, by its role."""
    told = item if isinstance(item, dict) else vars(item) if isinstance(item, RequestModel) else {}
    kind, role = told.get("type"), told.get("role")
    if isinstance(kind, str) and kind in _BRANCHES:
        return _BRANCHES[kind] + BRANCH
    if kind not in (None, "message"):
        return f"user{BRANCH}"  # which says why it is refused
    found = _ROLES.get(role) if isinstance(role, str) else None
    return found + BRANCH if found else ""


InputItem = Annotated[
    Annotated[UserItem, Tag(f"user{BRANCH}")]
    | Annotated[InstructionItem, Tag(f"instruction{BRANCH}")]
    | Annotated[AnswerItem, Tag(f"answer{BRANCH}")]
    | Annotated[FunctionCallItem, Tag(f"call{BRANCH}")]
    | Annotated[FunctionResultItem, Tag(f"result{BRANCH}")]
    | Annotated[ReasoningItem, Tag(f"reasoning{BRANCH}")]
    | Annotated[CompactionItem, Tag(f"compaction{BRANCH}")],
    Discriminator(
        _branch,
        custom_error_type="at_fault",
        custom_error_message="{message}",
        custom_error_context=FaultContext(field="role", message=f"must be one of {', '.join(_ROLES)}"),
    ),
]
InputItems = Annotated[list[InputItem], Field(max_length=MAX_MESSAGES, fail_fast=True)]
