"""A request of Anthropic's API as one of OpenAI's chat completions, which is worked on: the canonical form of both.

So a conversation goes on in the same session, whichever API its next turn is asked for in.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from kakeya_http_shim.messages_api import attribution
from kakeya_http_shim.messages_api.blocks import (
    AnswerBlock,
    ResultBlock,
    SystemTurn,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
    UserBlock,
)
from kakeya_http_shim.messages_api.messages_request import MessagesFields, MessagesRequest
from kakeya_http_shim.messages_api.messages_tools import CustomTool, as_function, as_tool_choice
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.fields import problem
from kakeya_http_shim.requests.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from kakeya_http_shim.requests.tools import MAX_SHOWN_LETTERS, for_template

_Block = UserBlock | AnswerBlock
_Run = tuple[str, list[_Block]]
"""Blocks of one message, and its role as OpenAI has it."""


def chat_request(given: MessagesFields) -> ChatRequest:
    """The chat that it is; of one whose tokens are counted, as much as makes its prompt.

    Raises:
        ApiError: there is nothing to answer, or too much of it.
    """
    try:
        return ChatRequest.model_validate(_fields(given))
    except ValidationError as error:  # one message of theirs may be several of ours
        raise problem(error) from None


def _fields(given: MessagesFields) -> dict[str, Any]:
    messages = chat_messages(given)
    fields: dict[str, Any] = {
        "model": given.model,
        "messages": messages,
        "continue_final_message": True if isinstance(messages[-1], AssistantMessage) else None,
        "enable_thinking": given.thinks,
        "reasoning_effort": given.output_config.effort if given.output_config else None,
        "thinking_budget": given.thinking.budget_tokens if given.thinking and given.thinks else None,
        "tools": [as_function(tool) for tool in given.tools or ()] or None,
    }
    if given.tool_choice is not None:
        fields["tool_choice"] = as_tool_choice(given.tool_choice)
        fields["parallel_tool_calls"] = not given.tool_choice.disable_parallel_tool_use
    if given.output_schema is not None:
        named = {"name": "answer", "schema": given.output_schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": named}
    if isinstance(given, MessagesRequest):
        fields |= {
            "max_tokens": given.max_tokens,
            "stop": given.stop_sequences or None,
            "temperature": given.temperature,
            "top_p": given.top_p,
            "top_k": given.top_k,
            "stream": given.stream,
            "kakeya": given.kakeya,
        }
    return {name: value for name, value in fields.items() if value is not None}


def chat_messages(given: MessagesFields) -> list[Message]:
    """Its messages, a last one of the assistant's among them only if that has text to go on with.

    Raises:
        ApiError: none is left, or the last one calls tools; or a tool is referred to that is not there.
    """
    head: list[Turn] = [SystemTurn(role="system", content=given.system or [])]
    told = {tool.name: tool for tool in given.tools or ()}
    messages = [_message(role, blocks, told) for role, blocks in _runs([*head, *given.messages])]
    last = messages[-1] if messages else None
    if isinstance(last, AssistantMessage):
        if last.tool_calls:
            raise _unanswerable("the last one calls tools; what they answered is to follow")
        if not last.content:
            del messages[-1]
    if not messages:
        raise _unanswerable("there is nothing to answer")
    return messages


def _unanswerable(why: str) -> ApiError:
    return ApiError(400, f"messages: {why}", param="messages", code="invalid_value")


def _runs(turns: Iterable[Turn]) -> Iterator[_Run]:
    """Blocks message by message; what one role says in a row is one message, and what a tool answered one by itself."""
    run: _Run | None = None
    for turn in turns:
        for role, blocks in _cut(turn):
            if run is not None and run[0] == role and role in ("user", "assistant"):
                run[1].extend(blocks)
                continue
            if run is not None:
                yield run
            run = role, list(blocks)
    if run is not None:
        yield run


def _cut(turn: Turn) -> Iterator[_Run]:
    blocks: list[_Block] = [*_blocks(turn.content)]
    if turn.role == "assistant":
        yield turn.role, blocks
        return
    if turn.role == "system":
        if blocks := [*_for_the_model(blocks)]:
            yield turn.role, blocks
        return
    for is_result, same in groupby(blocks, lambda block: isinstance(block, ToolResultBlock)):
        if is_result:
            yield from (("tool", [block]) for block in same)
        else:
            yield "user", list(same)


def _blocks(content: str | Sequence[_Block] | None) -> Sequence[_Block]:
    if isinstance(content, str):
        return [TextBlock(type="text", text=content)]
    return content or ()


def _message(role: str, blocks: Sequence[_Block], tools: Mapping[str, CustomTool]) -> Message:
    first = blocks[0] if blocks else None
    if isinstance(first, ToolResultBlock):
        answer = _content(_told(first.content, tools)) or ""
        return ToolMessage.model_validate({"role": role, "tool_call_id": first.tool_use_id, "content": answer})
    if role == "user":
        return UserMessage.model_validate({"role": role, "content": _content(blocks) or ""})
    if role == "system":
        return SystemMessage.model_validate({"role": role, "content": _content(blocks) or ""})
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock) and block.thinking]
    said = {
        "role": role,
        "content": _content(block for block in blocks if isinstance(block, TextBlock) and block.text),
        "reasoning_content": "\n".join(thoughts) or None,
        "tool_calls": [_call(block) for block in blocks if isinstance(block, ToolUseBlock)] or None,
    }
    return AssistantMessage.model_validate(said)


def _told(content: str | Sequence[ResultBlock] | None, tools: Mapping[str, CustomTool]) -> Sequence[_Block]:
    """What a tool answered, as texts: a tool that it refers to is told as templates are told of tools."""
    if isinstance(content, str):
        return [TextBlock(type="text", text=content)]
    return [_described(block, tools) if isinstance(block, ToolReferenceBlock) else block for block in content or ()]


def _described(reference: ToolReferenceBlock, tools: Mapping[str, CustomTool]) -> TextBlock:
    if reference.tool_name not in tools:
        name = reference.tool_name[:MAX_SHOWN_LETTERS]
        why = f"messages: a tool_reference names {name!r}, which is none of tools"
        raise ApiError(400, why, param="messages", code="invalid_value")
    tool = for_template(as_function(tools[reference.tool_name]))
    return TextBlock(type="text", text=json.dumps(tool, ensure_ascii=False))


def _content(blocks: Iterable[_Block]) -> str | list[Any] | None:
    """Its texts: one as a text, several as parts."""
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    if len(texts) < 2:
        return texts[0] if texts else None
    return [TextPart(type="text", text=text) for text in texts]


def _call(block: ToolUseBlock) -> ToolCall:
    function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
    return ToolCall.model_validate({"id": block.id, "type": "function", "function": function})


def _for_the_model(blocks: Iterable[_Block]) -> Iterator[_Block]:
    """Of a system prompt: what is not for Anthropic's books, and not empty."""
    for block in blocks:
        if isinstance(block, TextBlock) and (text := attribution.without(block.text)):
            yield TextBlock(type="text", text=text)
