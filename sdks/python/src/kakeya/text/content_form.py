"""In which form a chat template takes the content of a message."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ContentForm:
    """What comes out of a template again where it is a message's content.

    Attributes:
        text: one text.
        part: a list of one part, `{"type": "text", "text": ...}`.
        parts: a list of several.
    """

    text: bool
    part: bool
    parts: bool

    def __bool__(self) -> bool:
        return self.text or self.part or self.parts

    def of(self, content: Any) -> Any:
        """The content in a form that the template takes: as it is where that is one, or where it is not all text.

        Parts of which the template would show one only, or none, are joined without anything between them.
        """
        if isinstance(content, str):
            return content if self.text else [text_part(content)]
        if not _are_texts(content) or (content and self.parts):
            return content
        joined = "".join(part["text"] for part in content)
        if self.text:
            return joined
        return [text_part(joined)] if content else content


def text_part(text: str) -> dict[str, str]:
    """A part of a content, as templates know it."""
    return {"type": "text", "text": text}


def _are_texts(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    )
