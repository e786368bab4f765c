"""A chat request, as far as its live session is concerned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Protocol, overload

from kakeya.text.chat_tokenizer import Tools
from kakeya_http_shim.conversations import tags
from kakeya_http_shim.conversations.call_numbers import numbered
from kakeya_http_shim.conversations.tags import Candidate
from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.requests.messages import AssistantMessage, Message, for_template
from kakeya_http_shim.text.delta import Delta
from kakeya_http_shim.tools.deltas import joined

_CLOCK: Final = "strftime_now"
"""What a chat template asks for the time by."""


class Rendering(Protocol):
    """Writes the prompts of one request, off the event loop where that takes long. Its errors are ApiErrors."""

    async def whole(self) -> Prompt:
        """The conversation from its beginning."""
        ...

    async def behind(self, candidate: Candidate) -> Prompt | None:
        """What follows a place; None where the template would have to write anew what is before it."""
        ...

    async def behind_either(self, index: int) -> tuple[Prompt, int] | None:
        """What follows an answer without its last token, and how many of these tokens there are already with it."""
        ...


class TemplateMessages(Sequence[dict[str, Any]]):
    """Messages as chat templates take them, made when they are looked at: of a long conversation few are."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [for_template(message) for message in self._messages[index]]
        return for_template(self._messages[index])


@dataclass(frozen=True)
class Linking:
    """How the chain of a conversation's tags is made.

    Attributes:
        numbers_calls: its client sends calls of tools back without their ids, or with others.
        make: as `tags.chain` does.
    """

    numbers_calls: bool = False
    make: Callable[[bytes, Sequence[Message]], list[bytes]] = tags.chain


@dataclass(frozen=True)
class Conversation:
    """What was said, and all that the tags of its places depend on.

    Attributes:
        variables: what the chat template is told beside the messages.
        on_overflow: of its session.
        root: what its chain of tags begins with.
        head_root: the same of today, where the chat template writes the date: in a new session that is right.
        tools: what the model may call; None where there are none.
    """

    messages: Sequence[Message]
    variables: Mapping[str, Any] | None
    model: TextModel
    on_overflow: str
    root: bytes
    head_root: bytes
    tools: Tools | None = None
    linking: Linking = Linking()

    @classmethod
    def of(
        cls,
        messages: Sequence[Message],
        variables: Mapping[str, Any] | None,
        model: TextModel,
        on_overflow: str,
        *,
        tools: Tools | None = None,
        linking: Linking = Linking(),
    ) -> "Conversation":
        """Raises TokenizerError where the chat template does not write its head."""
        tokenizer, given = model.tokenizer, TemplateMessages(messages)

        def root(**day: str) -> bytes:
            return tags.root(
                head=tokenizer.head_text(given, tools=tools, variables=variables),
                templates=tokenizer.templates,
                tokenizer=tokenizer.digest,
                model=model.served.name,
                options={"on_overflow": on_overflow, "parses_texts": tokenizer.parses_texts, **day},
            )

        always = root()
        writes_date = any(_CLOCK in template for template in tokenizer.templates)
        today = root(day=datetime.now().date().isoformat()) if writes_date else always
        return cls(messages, variables, model, on_overflow, always, today, tools, linking)

    @property
    def tokenizer(self) -> ModelTokenizer:
        return self.model.tokenizer

    @cached_property
    def chain(self) -> list[bytes]:
        return self.linking.make(self.root, numbered(self.messages) if self.linking.numbers_calls else self.messages)

    @cached_property
    def last_answer(self) -> int | None:
        """Which message it is."""
        indices = range(len(self.messages) - 1, -1, -1)
        return next((index for index in indices if self.messages[index].role == "assistant"), None)

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The places at which it can go on, the deepest first."""
        *found, head = tags.candidates(self.chain, self.messages, variables=self.variables)
        found.append(replace(head, tag=self.head_tag))
        if self.tokenizer.begins(self.variables) != "inside":
            return found
        # What a client sends of an answer lacks its thoughts: it does not go where those have been begun.
        return [each for each in found if each.kind != "start" or each.index == len(self.messages)]

    @property
    def head_tag(self) -> bytes:
        return tags.head(self.head_root)

    @property
    def start_tag(self) -> bytes:
        """Of the place where its answer begins."""
        return tags.start(self.chain[-1], variables=self.variables)

    def end_tag(self, told: Delta, *, closed: bool) -> bytes:
        """Of the place where its answer ended, if that is this."""
        answer: Message = _as_sent_back(told)
        if self.linking.numbers_calls and told.has_calls:
            answer = numbered([*self.messages, answer])[-1]
        return tags.end_of_answer(self.chain[-1], answer, closed=closed)


def _as_sent_back(told: Delta) -> AssistantMessage:
    answer = joined(told.parts)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]
    return AssistantMessage.model_validate({"role": "assistant", "content": answer.content, "tool_calls": calls})


@dataclass(frozen=True)
class Chat:
    """A chat request that is to be answered in a live session.

    Attributes:
        rendering: writes its prompts.
        owner: of its session: equal for equal keys, and not the key.
        park_after_seconds: idle time after which its session is parked; 0: behind its answer; None: the server's.
    """

    conversation: Conversation
    rendering: Rendering
    owner: bytes
    park_after_seconds: int | None = None
