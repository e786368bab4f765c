"""What a template is given, made from what the caller gave: counted, checked, its texts marked where that matters."""

from collections.abc import Mapping
from typing import Any, Protocol

from kakeya.text.rendering.marked_text import StandIns, has_stand_ins
from kakeya.text.tokenizer_error import PromptRefused

_ENUMERATED = frozenset({"role", "type"})
"""A template writes control tokens with them (`<|user|>`); where they are words they are no texts."""


class Suspicion(Protocol):
    """For which texts all of them are marked, and how."""

    stand_ins: StandIns

    def falls_on(self, text: str) -> bool:
        """Whether a text could be part of a control token, by itself or with what stands beside it."""
        ...


class Given:
    """One rendering's. All of its texts are marked, or none: a plain one that is asked about a marked one
    (`a.strip(b)`) would look at stand-ins.

    Args:
        stand_ins: what letters are exchanged for; None to mark nothing.

    Attributes:
        texts: all until now, as they were given; but for words that are no texts.
    """

    def __init__(self, stand_ins: StandIns | None = None) -> None:
        self._stand_ins = stand_ins
        self.texts: list[str] = []

    def value(self, given: Any) -> Any:
        """A copy for the template. Raises PromptRefused where a text holds half a character."""
        if isinstance(given, str):
            return self._text(given)
        if isinstance(given, Mapping):
            return {self.value(name): self._named(name, each) for name, each in given.items()}
        if isinstance(given, list | tuple):
            return [self.value(each) for each in given]
        # What else there is may have methods that the sandbox does not know to be dangerous.
        return given if given is None or type(given) in (bool, int, float) else f"<{type(given).__name__}>"

    def _named(self, name: object, given: Any) -> Any:
        if name in _ENUMERATED and isinstance(given, str) and given.isidentifier():
            return given
        return self.value(given)

    def _text(self, text: str) -> str:
        self.texts.append(text)
        if has_stand_ins(text):
            check_whole(text)
        if self._stand_ins is None or not text:
            return str.__str__(text)
        return self._stand_ins.text_type(self._stand_ins.mark(text))


def check_whole(text: str) -> None:
    """Raises PromptRefused where a text holds half a character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptRefused(f"the text holds half a character, {text[error.start]!r}") from error
