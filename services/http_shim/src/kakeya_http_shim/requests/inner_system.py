"""System messages within a conversation, for chat templates that take them at its beginning only.

Agents tell the model there what has changed, such as a file. It is told by the message beside it then: the user's or
the tool's result before it, else the user's behind it. Where it goes depends on what stands before it and right behind
it alone, so that the next request has it at the same place, and its session goes on.
"""

from collections.abc import Sequence

from kakeya_http_shim.requests.messages import Message, SystemMessage, TextPart, ToolMessage, UserMessage


def without_inner_system(messages: Sequence[Message]) -> list[Message]:
    """The messages, with every system message in the head, or as a part of another message."""
    told: list[Message] = []
    waiting: list[TextPart] = []
    for message in messages:
        if isinstance(message, SystemMessage) and not all(isinstance(each, SystemMessage) for each in told):
            if isinstance(told[-1], UserMessage | ToolMessage) and not waiting:
                told[-1] = _with(told[-1], behind=_parts(message))
            else:
                waiting += _parts(message)
            continue
        if waiting and not isinstance(message, UserMessage):
            told.append(_by_user(waiting))
        elif waiting and isinstance(message, UserMessage):
            message = _with(message, before=waiting)
        waiting = []
        told.append(message)
    return [*told, _by_user(waiting)] if waiting else told


def _by_user(parts: list[TextPart]) -> UserMessage:
    return UserMessage.model_validate({"role": "user", "content": parts})


def _with(
    message: UserMessage | ToolMessage, *, before: Sequence[TextPart] = (), behind: Sequence[TextPart] = ()
) -> UserMessage | ToolMessage:
    return message.model_copy(update={"content": [*before, *_parts(message), *behind]})


def _parts(message: SystemMessage | UserMessage | ToolMessage) -> list[TextPart]:
    content = message.content
    return [TextPart(type="text", text=content)] if isinstance(content, str) else list(content)
