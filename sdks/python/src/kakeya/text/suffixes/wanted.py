"""Which suffix is asked for, and the same question about another conversation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kakeya.text.chat_template import Message, Tools
from kakeya.text.rendering.head import leading
from kakeya.text.rendering.kept import key_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the template writes behind a message of a conversation.

    Attributes:
        messages: the conversation.
        index: of the answer among them.
        repeats_answer: the answer, too, from where it begins.
        tools: what it may call.
        variables: what else the template is told.
        at: the time that the template is told; the same in all renderings that are compared.
    """

    messages: Sequence[Message]
    index: int
    repeats_answer: bool
    tools: Tools | None
    variables: Mapping[str, Any] | None
    at: datetime

    @property
    def answer(self) -> Message:
        """The message behind which it is."""
        return self.messages[self.index]

    @property
    def head(self) -> list[Message]:
        """The system messages that the conversation begins with."""
        return leading(self.messages)

    def behind(self, history: Sequence[Message], tools: Tools | None = None) -> "Wanted":
        """The same, with another history before the answer.

        Args:
            tools: in place of its own, where it has some.
        """
        told = tools if tools is not None and self.tools else self.tools
        return replace(self, messages=[*history, *self.messages[self.index :]], index=len(history), tools=told)

    def key(self) -> bytes:
        """Of what is alike in all conversations whose suffix depends on their history in the same way.

        That is the form of the answer and of what follows, and all that the template is told beside the history: the
        head, tools and variables. The texts that follow are left out: they are new each time, and always rendered.
        """
        forms = [_form(message) for message in self.messages[self.index :]]
        return key_of(forms, self.repeats_answer, self.head, self.tools, self.variables)


def _form(message: Message) -> tuple[object, ...]:
    names = sorted(str(name) for name, value in message.items() if value is not None)
    return message.get("role"), type(message.get("content")).__name__, len(message.get("tool_calls") or ()), names
