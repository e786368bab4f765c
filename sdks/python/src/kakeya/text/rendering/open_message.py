"""A last message that is left open, so that the model goes on with its text."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kakeya.text.tokenizer_error import PromptRefused

Message = Mapping[str, Any]

_MARKER = "Kakeyaopen"  # with digits that no text foresees


def left_open(
    messages: Sequence[Message], render: Callable[[Sequence[Message]], str], unmark: Callable[[str], str]
) -> str:
    """A conversation up to the end of the last message's text, without what the template writes behind that.

    As transformers has `continue_final_message`: white space at the text's end stays where the template keeps it.

    Args:
        render: what a template writes, without the beginning of an answer, perhaps with stand-ins.
        unmark: the same without stand-ins; each letter stays in its place.

    Raises:
        PromptRefused: the last message has no text, or the template leaves it out; and what `render` raises.
    """
    if not messages:
        raise PromptRefused("there are no messages")
    marker = f"{_MARKER}{secrets.token_hex(8)}"
    rendered = render([*messages[:-1], _marked(messages[-1], f"{marker} ")])
    meant = unmark(rendered)
    place = meant.rfind(marker)
    if place < 0:
        raise PromptRefused("the chat template leaves out the text that is to be gone on with")
    is_kept = meant[place + len(marker) :].startswith(" ")
    return rendered[: place if is_kept else len(meant[:place].rstrip())]


def _marked(message: Message, marker: str) -> Message:
    """The message with a marker behind its text. Raises PromptRefused where it has none."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + marker}
    parts = list(content) if isinstance(content, list) else []
    for place in reversed(range(len(parts))):
        if isinstance(text := parts[place].get("text"), str):
            parts[place] = {**parts[place], "text": text + marker}
            return {**message, "content": parts}
    raise PromptRefused("the last message has no text to go on with")
