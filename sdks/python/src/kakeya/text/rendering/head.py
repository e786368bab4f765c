"""The head of a conversation: what it begins with, whatever is said then. System messages, and tools."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Protocol

from kakeya.text.tokenizer_error import TemplateStopped, TokenizerError

Message = Mapping[str, Any]
_LEADING_ROLES = ("system", "developer")


class Render(Protocol):
    """What a template writes, told of tools and all else already; perhaps with stand-ins."""

    def __call__(self, messages: Sequence[Message], *, prompts_answer: bool) -> str: ...


class Unmark(Protocol):
    """The same without stand-ins."""

    def __call__(self, rendered: str, /) -> str: ...


def said(text: str) -> Message:
    """A message of the user's."""
    return {"role": "user", "content": text}


def leading(messages: Sequence[Message]) -> list[Message]:
    """The system messages that a conversation begins with."""
    return list(takewhile(lambda message: message.get("role") in _LEADING_ROLES, messages))


def common_head(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, render: Render, unmark: Unmark
) -> str:
    """What every prompt that begins with these system messages and tools begins with.

    Returns:
        "" where the template leaves a part of it out, or puts it behind what follows.

    Raises:
        TokenizerError: the template fails on them, or refuses them.
    """
    system = leading(messages)
    wanted = _wanted(system, tools)
    found = _common_head(system, wanted, render, unmark)
    return found if _holds(unmark(found), wanted) else ""


def head(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, render: Render, unmark: Unmark) -> str:
    """What of that this conversation begins with. Returns and raises as `common_head`."""
    found = common_head(messages, tools, render, unmark)
    found = found[: num_common(unmark(found), unmark(render(messages, prompts_answer=True)))]
    return found if _holds(unmark(found), _wanted(leading(messages), tools)) else ""


def before_first(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, render: Render, unmark: Unmark
) -> str:
    """What the template writes before the first message that is not of the head; told from the head alone.

    Returns:
        With what stands behind the first message, where a part of the head is only there.

    Raises:
        TokenizerError: the template fails on it, or refuses it.
    """
    system = leading(messages)
    first, second = (unmark(render([*system, said(text)], prompts_answer=False)) for text in ("A", "B"))
    found = first[: num_common(first, second)]
    return found if _holds(found, _wanted(system, tools)) else first


def _wanted(system: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """What a head holds."""
    said_first = [text for message in system for text in texts(message.get("content"))]
    return [*said_first, *(str(tool.get("function", tool).get("name", "")) for tool in tools or ())]


def _common_head(system: list[Message], wanted: list[str], render: Render, unmark: Unmark) -> str:
    first, second = (render([*system, said(text)], prompts_answer=True) for text in ("A", "B"))
    try:
        alone = render(system, prompts_answer=False) if system else ""
    except TemplateStopped:
        raise
    except TokenizerError:
        alone = ""
    # Some templates render no system message alone, or put it into the user's: then the head of that is in, too.
    if alone and _holds(unmark(alone), wanted) and first.startswith(alone):
        return alone
    return first[: num_common(first, second)]


def _holds(rendered: str, wanted: Sequence[str]) -> bool:
    """Whether all the texts are in it, in capitals perhaps, as some templates write them."""
    rendered = rendered.casefold()
    return all(text.strip().casefold() in rendered for text in wanted)


def texts(content: Any) -> list[str]:
    """Of a content, which may be one text, or parts, some of which are texts."""
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return [content] if isinstance(content, str) else []


def num_common(first: Sequence[object], second: Sequence[object]) -> int:
    """How many elements both begin with; found by halving, since texts may be long."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
