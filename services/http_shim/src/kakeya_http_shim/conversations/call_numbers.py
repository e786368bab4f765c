"""Calls of tools by their numbers in a conversation: for clients that send them back without ids.

Equal conversations have equal numbers, whatever ids their calls have, and another order of results is another one.
"""

from collections.abc import Sequence

from kakeya_http_shim.requests.messages import AssistantMessage, Message, ToolMessage
from kakeya_http_shim.tools.deltas import NUM_ID_LETTERS

_UNKNOWN = "?"
"""Before the id of a call that is not there; no number begins so."""


def call_number(index: int) -> str:
    """In the form of an id of ours.

    Args:
        index: of the call in its conversation.
    """
    return f"{index:0{NUM_ID_LETTERS}d}"


def numbered(messages: Sequence[Message]) -> list[Message]:
    """The same messages with numbers in place of the ids of calls, and of what answers these."""
    numbers: dict[str, str] = {}
    num_calls = 0
    found: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            calls = []
            for call in message.tool_calls:
                numbers[call.id] = number = call_number(num_calls)
                calls.append(call.model_copy(update={"id": number}))
                num_calls += 1
            found.append(message.model_copy(update={"tool_calls": calls}))
        elif isinstance(message, ToolMessage):
            number = numbers.get(message.tool_call_id, _UNKNOWN + message.tool_call_id)
            found.append(message.model_copy(update={"tool_call_id": number}))
        else:
            found.append(message)
    return found
