"""What was asked for, as an answer says it again."""

from typing import Any, Literal

from kakeya_http_shim.responses_api.responses_request import ReasoningOptions, ResponsesRequest
from kakeya_http_shim.responses_api.responses_tools import FunctionTool, NamespaceTool, SearchTool

_DEFAULT_FORMAT = {"type": "text"}


def asked_for(given: ResponsesRequest, on_overflow: Literal["evict", "refuse"], *, stores: bool) -> dict[str, Any]:
    """Fields of a response, all of those that do not depend on its answer.

    Args:
        on_overflow: the server's, where the request says nothing of it.
        stores: whether the server stores any.
    """
    choice = given.tool_choice or "auto"
    return {
        "previous_response_id": given.previous_response_id,
        **({"conversation": {"id": given.conversation_id}} if given.conversation_id is not None else {}),
        "instructions": given.instructions,
        "tools": [_tool(tool) for tool in given.tools or () if not isinstance(tool, SearchTool)],
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "parallel_tool_calls": given.parallel_tool_calls is not False,
        "text": {"format": _format(given)},
        "reasoning": None if given.reasoning is None else _reasoning(given.reasoning),
        "truncation": "auto" if (given.on_overflow or on_overflow) == "evict" else "disabled",
        "temperature": 1.0 if given.temperature is None else given.temperature,
        "top_p": 1.0 if given.top_p is None else given.top_p,
        "presence_penalty": given.presence_penalty or 0.0,
        "frequency_penalty": given.frequency_penalty or 0.0,
        "top_logprobs": 0,
        "max_output_tokens": given.max_output_tokens,
        "max_tool_calls": given.max_tool_calls,
        "store": stores and given.store is not False,
        "background": False,
        "service_tier": "default",
        "metadata": given.metadata or {},
        "safety_identifier": given.safety_identifier,
        "prompt_cache_key": given.prompt_cache_key,
        "user": given.user,
    }


def _tool(tool: FunctionTool | NamespaceTool) -> dict[str, Any]:
    if isinstance(tool, NamespaceTool):
        inner = [_tool(each) for each in tool.tools]
        return {"type": "namespace", "name": tool.name, "description": tool.description, "tools": inner}
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }


def _format(given: ResponsesRequest) -> dict[str, Any]:
    form = given.text.format if given.text else None
    if form is None:
        return _DEFAULT_FORMAT
    told = form.model_dump(by_alias=True)
    return told | {"strict": True} if told["type"] == "json_schema" else told


def _reasoning(given: ReasoningOptions) -> dict[str, Any]:
    return {"effort": given.effort, "summary": None}
