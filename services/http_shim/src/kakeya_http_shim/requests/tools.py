"""What a model may call, as OpenAI's chat completions have it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, StringConstraints

from kakeya_http_shim.requests.fields import honoured, refusal
from kakeya_http_shim.requests.messages import Marked

MAX_TOOLS = 1024
"""Agents with many servers of tools have some hundreds; each is written into the prompt."""
MAX_SHOWN_LETTERS = 64
_NO_PARAMETERS = {"type": "object", "properties": {}}


ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]


def _only_functions(given: Any) -> Any:
    if isinstance(given, str) and given != "function":
        raise refusal(f"tools of the type {given[:MAX_SHOWN_LETTERS]!r}; functions are")
    return given


class Function(Marked):
    """What is called."""

    name: ToolName = honoured(..., "letters, digits, `_`, `.` and `-`, up to 128")
    description: str | None = honoured(None, "handed to the chat template")
    parameters: dict[str, JsonValue] | None = honoured(
        None, "a JSON schema, handed to the chat template; without one, or with an empty one: no arguments"
    )
    strict: bool | None = honoured(
        None, "true: its calls are held to the schema; those of an answer that has to call are anyway"
    )


class Tool(Marked):
    """A function that the model may call."""

    type: Annotated[Literal["function"], BeforeValidator(_only_functions)] = honoured(..., "`function`")
    function: Function = honoured(..., "see below")


class DeferredTool(Tool):
    """One that the prompt tells of at another place than the list of tools, or not at all; it may be called."""


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)]


def for_template(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates take it; as OpenAI has it, but for what is of no use to a model."""
    described = {} if tool.function.description is None else {"description": tool.function.description}
    function = {"name": tool.function.name, **described, "parameters": tool.function.parameters or _NO_PARAMETERS}
    return {"type": "function", "function": function}
