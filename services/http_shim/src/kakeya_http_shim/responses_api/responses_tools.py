"""What a model may call, as the API of Responses has it."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, StringConstraints, Tag

from kakeya_http_shim.requests.fields import BRANCH, RequestModel, at_fault, honoured, known, refusal, without_effect
from kakeya_http_shim.requests.tools import MAX_SHOWN_LETTERS, MAX_TOOLS, Function, Tool, ToolName

_SEARCHES: Final = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
"""What agents offer unasked. A model that is not told of it answers without, as one that chooses not to search does."""


def _only_functions(given: Any) -> Any:
    if isinstance(given, str) and given != "function":
        raise refusal(f"tools of the type {given[:MAX_SHOWN_LETTERS]!r}; functions are")
    return given


NamespaceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,62}$")]


class FunctionTool(RequestModel):
    """A function that the client runs."""

    type: Annotated[Literal["function"], BeforeValidator(_only_functions)] = honoured(
        ..., "`function`; tools that OpenAI has made, or runs, are refused by name"
    )
    name: ToolName = honoured(..., "letters, digits, `_`, `.` and `-`, up to 128")
    description: str | None = honoured(None, "handed to the chat template")
    parameters: dict[str, JsonValue] | None = honoured(
        None, "a JSON schema, handed to the chat template; without one, or with an empty one: no arguments"
    )
    strict: bool | None = honoured(
        None,
        "true: its calls are held to the schema; those of an answer that has to call are anyway. Not true by default, "
        "as OpenAI's is: few schemas are made for it",
    )


class SearchTool(RequestModel):
    """A search of the web: nothing is searched, the model is not told of it, and so it answers without."""

    type: Literal["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]
    external_web_access: JsonValue = None
    filters: JsonValue = None
    search_content_types: JsonValue = None
    search_context_size: JsonValue = None
    user_location: JsonValue = None


class InnerFunction(FunctionTool):
    """A function of a namespace."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = honoured(
        ..., "letters, digits, `_`, `.` and `-`, up to 64"
    )


class NamespaceTool(RequestModel):
    """Functions that belong together, as agents send those of one of their servers; each is offered by itself."""

    type: Literal["namespace"]
    name: NamespaceName = honoured(..., "stands before the names of its functions; a call has it by itself again")
    description: str | None = without_effect("chat templates have no place for it")
    tools: Annotated[list[InnerFunction], Field(max_length=MAX_TOOLS, fail_fast=True)] = honoured(
        ..., "functions, as above; their names have up to 64 letters"
    )


def _tool_branch(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    if not isinstance(kind, str):
        return f"function{BRANCH}"
    return f"{'search' if kind in _SEARCHES else 'namespace' if kind == 'namespace' else 'function'}{BRANCH}"


OfferedTool = Annotated[
    Annotated[FunctionTool, Tag(f"function{BRANCH}")]
    | Annotated[NamespaceTool, Tag(f"namespace{BRANCH}")]
    | Annotated[SearchTool, Tag(f"search{BRANCH}")],
    Discriminator(_tool_branch),
]
OfferedTools = Annotated[list[OfferedTool], Field(max_length=MAX_TOOLS, fail_fast=True)]


class ForcedFunction(RequestModel):
    """A function that has to be called."""

    type: Annotated[
        Literal["function"],
        known(
            *("allowed_tools", "custom", "mcp", "apply_patch", "shell", "file_search", "computer", *_SEARCHES),
            *("computer_use", "computer_use_preview", "code_interpreter", "image_generation"),
            why="a function can be forced, or any",
        ),
    ]
    name: ToolName


def _choice_branch(given: Any) -> str:
    return f"{'named' if isinstance(given, dict | ForcedFunction) else 'text'}{BRANCH}"


FunctionChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(f"text{BRANCH}")]
    | Annotated[ForcedFunction, Tag(f"named{BRANCH}")],
    Discriminator(_choice_branch),
]


class OfferedFunction:
    """A rule: a call can be forced of what is offered."""

    def check(self, given: Any) -> None:
        """For a validator. Raises PydanticCustomError."""
        names = {tool.name for tool in given.functions}
        if given.tool_choice in (None, "none", "auto"):
            return
        if not names:
            raise at_fault("tool_choice", "there are no tools to call")
        if isinstance(given.tool_choice, ForcedFunction) and given.tool_choice.name not in names:
            raise at_fault("tool_choice", f"there is no tool {given.tool_choice.name}")

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema, which does not say that a name is that of a tool."""
        is_free = {"properties": {"tool_choice": {"enum": [None, "none", "auto"]}}}
        function = {"type": "object", "properties": {"type": {"const": "function"}}, "required": ["type"]}
        has_inner = {"type": {"const": "namespace"}, "tools": {"type": "array", "minItems": 1}}
        namespace = {"type": "object", "properties": has_inner, "required": ["type", "tools"]}
        offered = {"anyOf": [function, namespace]}
        has_tools = {"properties": {"tools": {"type": "array", "contains": offered}}, "required": ["tools"]}
        return {"anyOf": [is_free, has_tools]}


def functions(tools: Sequence[FunctionTool | NamespaceTool | SearchTool]) -> list[FunctionTool]:
    """Those that the model is told of, each by its full name."""
    found: list[FunctionTool] = []
    for tool in tools:
        if isinstance(tool, FunctionTool):
            found.append(tool)
        elif isinstance(tool, NamespaceTool):
            found += (inner.model_copy(update={"name": full_name(tool.name, inner.name)}) for inner in tool.tools)
    return found


def namespaces(tools: Sequence[FunctionTool | NamespaceTool | SearchTool]) -> dict[str, tuple[str, str]]:
    """Of full names, the namespace and the name in it."""
    spaces = [tool for tool in tools if isinstance(tool, NamespaceTool)]
    return {full_name(space.name, inner.name): (space.name, inner.name) for space in spaces for inner in space.tools}


def full_name(namespace: str, name: str) -> str:
    """By which a function of a namespace is told to the model."""
    return f"{namespace}__{name}"


def as_function(tool: FunctionTool) -> Tool:
    """As OpenAI's chat completions have it."""
    function = Function(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return Tool(type="function", function=function)


def as_tool_choice(choice: str | ForcedFunction) -> str | dict[str, Any]:
    """As OpenAI's chat completions have it."""
    return choice if isinstance(choice, str) else {"type": "function", "function": {"name": choice.name}}
