"""What a model may call, as Anthropic's API has it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from kakeya_http_shim.requests.fields import RequestModel, at_fault, honoured, refusal, without_effect
from kakeya_http_shim.requests.messages import Marked
from kakeya_http_shim.requests.tools import MAX_SHOWN_LETTERS, MAX_TOOLS, DeferredTool, Function, Tool, ToolName

_FORCING = ["any", "tool"]


def _only_custom(given: Any) -> Any:
    if isinstance(given, str) and given != "custom":
        raise refusal(f"tools of the type {given[:MAX_SHOWN_LETTERS]!r}; those with an input_schema of their own are")
    return given


class CustomTool(Marked):
    """A tool that the client runs."""

    type: Annotated[Literal["custom"], BeforeValidator(_only_custom)] | None = honoured(
        None, "`custom`; tools that Anthropic has made, or runs, are refused by name"
    )
    name: ToolName = honoured(..., "letters, digits, `_`, `.` and `-`, up to 128")
    description: str | None = honoured(None, "handed to the chat template")
    input_schema: dict[str, JsonValue] = honoured(..., "a JSON schema, handed to the chat template")
    strict: bool | None = honoured(
        None, "true: its calls are held to the schema; those of an answer that has to call are anyway"
    )
    eager_input_streaming: bool | None = without_effect("a call is told once it is whole")
    defer_loading: bool | None = honoured(
        None, "true: the model is told of it where a `tool_reference` of a tool's result names it, and not before"
    )
    input_examples: list[JsonValue] | None = without_effect("chat templates have no place for them")
    allowed_callers: list[Literal["direct"]] | None = without_effect("`[direct]`: the model alone calls")


class ToolChoice(RequestModel):
    """Whether the model calls tools."""

    type: Literal["auto", "none", "any", "tool"] = honoured(
        ...,
        "`auto` by default; `none`: the model is told of the tools, and what looks like a call is text; `any`, "
        "`tool`: the answer is nothing but calls, each held to its tool's schema",
    )
    name: ToolName | None = honoured(None, "of `tool`: the one")
    disable_parallel_tool_use: bool | None = honoured(None, "true: the answer ends with its first call")


class OfferedChoice:
    """A rule: a call can be forced of what is offered."""

    def check(self, given: Any) -> None:
        """For a validator. Raises PydanticCustomError."""
        if given.tool_choice is not None and given.tool_choice.type in _FORCING and not given.tools:
            raise at_fault("tool_choice", "there are no tools to call")

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        forces = {"type": "object", "required": ["type"], "properties": {"type": {"enum": _FORCING}}}
        has_tools = {"properties": {"tools": {"type": "array", "minItems": 1}}, "required": ["tools"]}
        return {"anyOf": [{"properties": {"tool_choice": {"not": forces}}}, has_tools]}


CustomTools = Annotated[list[CustomTool], Field(max_length=MAX_TOOLS, fail_fast=True)]


def as_function(tool: CustomTool) -> Tool:
    """As OpenAI's chat completions have it."""
    function = Function(name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict)
    return (DeferredTool if tool.defer_loading else Tool)(type="function", function=function)


def as_tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """As OpenAI's chat completions have it."""
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.type == "any" else choice.type
