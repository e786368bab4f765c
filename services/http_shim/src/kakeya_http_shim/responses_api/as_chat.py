"""A request for a response as one of OpenAI's chat completions, which is worked on: the canonical form of both.

So a conversation goes on in the same session, whichever API its next turn is asked for in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from pydantic import ValidationError

from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.compacted_message import CompactedMessage
from kakeya_http_shim.requests.fields import problem
from kakeya_http_shim.requests.generation_fields import KakeyaOptions
from kakeya_http_shim.requests.messages import (
    MAX_MESSAGES,
    AssistantMessage,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from kakeya_http_shim.responses_api.content_parts import InputTextPart, OutputPart, OutputTextPart
from kakeya_http_shim.responses_api.input_items import (
    AnswerItem,
    CompactionItem,
    FunctionCallItem,
    FunctionResultItem,
    InputItem,
    InstructionItem,
    ReasoningItem,
    UserItem,
)
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.responses_api.responses_tools import as_function, as_tool_choice, full_name

_OfModel = AnswerItem | FunctionCallItem | ReasoningItem


Unsealed = Mapping[str, Sequence[Message]]
"""By the encrypted content of a compaction item, the messages that it stands for."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Items that stand behind each other.

    Attributes:
        messages: that they are, where no answer reaches into the stretch or out of it.
    """

    items: Sequence[InputItem]
    messages: Sequence[Message]

    @classmethod
    def of(cls, items: Sequence[InputItem]) -> Self:
        return cls(items, [*_messages(items)])


def merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same with fewer: those that no answer reaches from or into are one with their neighbours."""
    found: list[list[Stretch]] = []
    for stretch in _with_items(stretches):
        if found and not _may_go_on(found[-1][-1], stretch):
            found[-1].append(stretch)
        else:
            found.append([stretch])
    return [
        Stretch(items_of(together), [message for each in together for message in each.messages]) for together in found
    ]


def items_of(stretches: Iterable[Stretch]) -> list[InputItem]:
    """All of them."""
    return [item for stretch in stretches for item in stretch.items]


def chat_request(
    given: ResponsesRequest, before: Sequence[Stretch] = (), unsealed: Unsealed | None = None
) -> ChatRequest:
    """The chat that it is.

    Args:
        before: the conversation before its own items.
        unsealed: of its last compaction item; None: that has not been looked at yet.

    Raises:
        ApiError: there is nothing to answer, or too much of it.
    """
    try:
        fields = _fields(given) | {"messages": chat_messages(given, before, unsealed)}
        return ChatRequest.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise problem(error) from None


def going_on(chat: ChatRequest, given: ResponsesRequest, before: Sequence[Stretch], unsealed: Unsealed) -> ChatRequest:
    """The chat that it is behind a conversation.

    Args:
        chat: that it is by itself, which has been checked; only messages that are kept come to it.
        before, unsealed: as of `chat_request`.

    Raises:
        ApiError: as `chat_request` does.
    """
    messages = chat_messages(given, before, unsealed)
    if len(messages) > MAX_MESSAGES:
        return chat_request(given, before, unsealed)  # which says so
    return chat.model_copy(update={"messages": messages})


def _fields(given: ResponsesRequest) -> dict[str, Any]:
    return {
        "model": given.model,
        "max_tokens": given.max_output_tokens,
        "temperature": given.temperature,
        "top_p": given.top_p,
        "presence_penalty": given.presence_penalty,
        "frequency_penalty": given.frequency_penalty,
        "logit_bias": given.logit_bias,
        "ignore_eos": given.ignore_eos,
        "tools": [as_function(tool) for tool in given.functions] or None,
        "tool_choice": None if given.tool_choice is None else as_tool_choice(given.tool_choice),
        "parallel_tool_calls": given.parallel_tool_calls,
        "response_format": given.response_format,
        "reasoning_effort": given.reasoning.effort if given.reasoning else None,
        "stream": given.stream,
        "kakeya": _options(given),
    }


def _options(given: ResponsesRequest) -> KakeyaOptions | None:
    if given.on_overflow is None:
        return given.kakeya
    return (given.kakeya or KakeyaOptions()).model_copy(update={"on_overflow": given.on_overflow})


def chat_messages(
    given: ResponsesRequest, before: Sequence[Stretch] = (), unsealed: Unsealed | None = None
) -> list[Message]:
    """Its messages, the instructions first.

    Args:
        before, unsealed: as of `chat_request`.

    Raises:
        ApiError: there are no others, or the last one calls functions.
    """
    own = own_items(given)
    said = [*before, Stretch.of(own)]
    items = items_of(said)
    index = last_compaction(items)
    if index is None:
        messages = [*_joined(said)]
    else:
        sealed = cast(CompactionItem, items[index]).encrypted_content
        messages = [CompactedMessage.of(None)] if unsealed is None else [*unsealed[sealed]]
        messages += _messages(items[index + 1 :])
    if not own or not messages:
        raise _unanswerable("there is nothing to answer")
    last = messages[-1]
    if isinstance(last, AssistantMessage) and last.tool_calls:
        raise _unanswerable("the last item calls a function; what that answered is to follow")
    if given.instructions:
        return [SystemMessage.model_validate({"role": "system", "content": given.instructions}), *messages]
    return messages


def last_compaction(items: Sequence[InputItem]) -> int | None:
    """Which of them is the last compaction item: what is before it is passed over. None: there is none."""
    return next((index for index in reversed(range(len(items))) if isinstance(items[index], CompactionItem)), None)


def _unanswerable(why: str) -> ApiError:
    return ApiError(400, f"input: {why}", param="input", code="invalid_value")


def own_items(given: ResponsesRequest) -> Sequence[InputItem]:
    """Those that it brings; a text is said by the user."""
    if isinstance(given.input, str):
        return [UserItem.model_validate({"role": "user", "content": given.input})]
    return given.input or ()


def _joined(said: Iterable[Stretch]) -> Iterator[Message]:
    """Message by message, where an answer may begin in one stretch and end in a later one."""
    together: list[Stretch] = []
    for stretch in _with_items(said):
        if together and not _may_go_on(together[-1], stretch):
            yield from _of_all(together)
            together = []
        together.append(stretch)
    yield from _of_all(together)


def _with_items(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    return (stretch for stretch in stretches if stretch.items)


def _may_go_on(before: Stretch, stretch: Stretch) -> bool:
    """Whether an answer that begins in one may end in the other."""
    return isinstance(before.items[-1], _OfModel) and isinstance(stretch.items[0], _OfModel)


def _of_all(together: Sequence[Stretch]) -> Iterable[Message]:
    if len(together) == 1:
        return together[0].messages
    return _messages(items_of(together))


def _messages(items: Iterable[InputItem]) -> Iterator[Message]:
    """Item by item; what the model said in one answer is one message."""
    answer: list[_OfModel] = []
    for item in items:
        is_of_model = isinstance(item, _OfModel)
        if answer and not (is_of_model and _is_of_answer(item, answer)):
            yield from _answer(answer)
            answer = []
        match item:
            case AnswerItem() | FunctionCallItem() | ReasoningItem():
                answer.append(item)
            case UserItem():
                yield UserMessage.model_validate({"role": item.role, "content": _content(item.content)})
            case InstructionItem():
                yield SystemMessage.model_validate({"role": item.role, "content": _content(item.content)})
            case FunctionResultItem():
                told = {"role": "tool", "tool_call_id": item.call_id, "content": _content(item.output)}
                yield ToolMessage.model_validate(told)
    yield from _answer(answer)


def _is_of_answer(item: InputItem, answer: Sequence[_OfModel]) -> bool:
    """Whether it goes on with an answer: a thought begins one, and two texts in a row are of two."""
    if isinstance(item, ReasoningItem):
        return isinstance(answer[-1], ReasoningItem)
    return not (isinstance(item, AnswerItem) and isinstance(answer[-1], AnswerItem))


def _answer(items: Sequence[_OfModel]) -> Iterator[Message]:
    """None where there is nothing but a thought: an answer was cut there."""
    if all(isinstance(item, ReasoningItem) for item in items):
        return
    thoughts = [part.text for item in items if isinstance(item, ReasoningItem) for part in item.content or ()]
    texts = [text for item in items if isinstance(item, AnswerItem) for text in _texts(item.content)]
    said = {
        "role": "assistant",
        "content": texts[0] if len(texts) == 1 else [TextPart(type="text", text=text) for text in texts] or None,
        "reasoning_content": "\n".join(thoughts) or None,
        "tool_calls": [_call(item) for item in items if isinstance(item, FunctionCallItem)] or None,
    }
    yield AssistantMessage.model_validate({name: value for name, value in said.items() if value is not None})


def _texts(content: str | Sequence[OutputPart]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part.text if isinstance(part, OutputTextPart) else part.refusal for part in content]


def _content(content: str | Sequence[InputTextPart]) -> str | list[TextPart]:
    """One part is a text, several are parts."""
    if isinstance(content, str):
        return content
    if len(content) < 2:
        return content[0].text if content else ""
    return [TextPart(type="text", text=part.text) for part in content]


def _call(item: FunctionCallItem) -> ToolCall:
    name = full_name(item.namespace, item.name) if item.namespace else item.name
    function = {"name": name, "arguments": item.arguments}
    return ToolCall.model_validate({"id": item.call_id, "type": "function", "function": function})
