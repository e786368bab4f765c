"""An answer's items, with the events that tell them: made of its pieces as they come, or of all of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kakeya_http_shim.responses_api.response_events import (
    CallArgumentsDelta,
    CallArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    ItemEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
)
from kakeya_http_shim.responses_api.response_object import (
    ItemStatus,
    OutputCall,
    OutputCompaction,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    ReasoningText,
)
from kakeya_http_shim.text.delta import Delta
from kakeya_http_shim.tools.deltas import ArgumentText, CallBegun, Content, Unfinished
from kakeya_http_shim.tools.deltas import Delta as Part


class AnswerItems:
    """Those of one answer.

    Args:
        key: of the answer, which the ids of its items have in them.
        numbers: of the stream's next events.
        namespaces: of full names of functions, the namespace and the name in it.
        seal: encrypts thoughts; None: they come as they are alone.

    Attributes:
        items: those that have ended.
        pieces: of each of them, how many letters each of its pieces had.
        unfinished: the text of a call that the answer ended within, behind others; "" without one.
    """

    def __init__(
        self,
        key: str,
        numbers: Iterator[int],
        namespaces: Mapping[str, tuple[str, str]],
        seal: Callable[[str], str] | None = None,
    ) -> None:
        self.items: list[OutputItem] = []
        self.pieces: list[list[int]] = []
        self.unfinished = ""
        self._key = key
        self._numbers = numbers
        self._namespaces = namespaces
        self._seal = seal
        self._open: OutputItem | None = None
        self._open_id = ""
        self._texts: list[str] = []

    def push(self, delta: Delta) -> Iterator[ItemEvent]:
        """A piece of the answer."""
        if delta.reasoning:
            yield from self._within(OutputReasoning)
            yield self._grown(delta.reasoning)
        for part in delta.parts:
            yield from self._told(part)

    def end(self, status: ItemStatus) -> Iterator[ItemEvent]:
        """The end of the answer.

        Args:
            status: of its last item.
        """
        said = [item for item in self._all if not isinstance(item, OutputCompaction)]
        says_nothing = all(isinstance(item, OutputReasoning) for item in said)
        if says_nothing and (status == "completed" or not said):  # so it comes back as what it was
            yield from self._within(OutputMessage)
        yield from self._close(status)

    def compaction(self, item: OutputCompaction) -> Iterator[ItemEvent]:
        """All that was said before the answer, which begins with it."""
        yield from self._opened(item)
        yield from self._close("completed")

    def again(self, item: OutputItem, pieces: Sequence[int] | None) -> Iterator[ItemEvent]:
        """The events of an item that has been told, in those pieces; None: in one."""
        text, begin = _text(item), 0
        encrypted = item.encrypted_content if isinstance(item, OutputReasoning) else None
        self._seal = None if encrypted is None else lambda _: encrypted
        pieces = pieces if pieces is not None else [len(text)] * bool(text)
        yield from self._opened(_begun(item))
        for length in pieces:
            yield self._grown(text[begin : begin + length])
            begin += length
        yield from self._close(item.status if isinstance(item, OutputMessage | OutputCall) else "completed")

    @property
    def open_item(self) -> tuple[OutputItem, list[int]] | None:
        """The one that has not ended, as far as it is told, and its pieces."""
        if self._open is None:
            return None
        return _ended(self._open, "".join(self._texts), "in_progress"), [*map(len, self._texts)]

    @property
    def _all(self) -> list[OutputItem]:
        return [*self.items, *([self._open] if self._open else [])]

    @property
    def _place(self) -> dict[str, Any]:
        """Of the item that is open, as an event has it."""
        return {"sequence_number": next(self._numbers), "item_id": self._open_id, "output_index": len(self.items)}

    def _told(self, part: Part) -> Iterator[ItemEvent]:
        match part:
            case Content(text):
                yield from self._within(OutputMessage)
                yield self._grown(text)
            case CallBegun(_, call_id, name):
                yield from self._close("completed")
                yield from self._opened(
                    OutputCall(
                        type="function_call",
                        id=self._id("fc"),
                        status="in_progress",
                        call_id=call_id,
                        arguments="",
                        **self._named(name),
                    )
                )
            case ArgumentText(_, text):
                yield self._grown(text)
            case Unfinished(text):
                self.unfinished = text

    def _named(self, name: str) -> dict[str, str]:
        if name not in self._namespaces:
            return {"name": name}
        namespace, own = self._namespaces[name]
        return {"name": own, "namespace": namespace}

    def _within(self, kind: type[OutputMessage] | type[OutputReasoning]) -> Iterator[ItemEvent]:
        """The beginning of an item, unless one of its kind is open."""
        if isinstance(self._open, kind):
            return
        yield from self._close("completed")
        if kind is OutputMessage:
            yield from self._opened(
                OutputMessage(type="message", id=self._id("msg"), status="in_progress", role="assistant", content=[])
            )
        else:
            yield from self._opened(
                OutputReasoning(type="reasoning", id=self._id("rs"), summary=[], content=[], encrypted_content=None)
            )

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._key}{len(self.items):04x}"

    def _opened(self, item: OutputItem) -> Iterator[ItemEvent]:
        self._open, self._open_id, self._texts = item, item.id, []
        yield OutputItemAdded(
            type="response.output_item.added",
            sequence_number=next(self._numbers),
            output_index=len(self.items),
            item=item,
        )
        if isinstance(item, OutputMessage | OutputReasoning):
            yield ContentPartAdded(
                type="response.content_part.added", content_index=0, part=_part(item, ""), **self._place
            )

    def _grown(self, text: str) -> ItemEvent:
        """A piece of what is open."""
        self._texts.append(text)
        match self._open:
            case OutputReasoning():
                return ReasoningTextDelta(
                    type="response.reasoning_text.delta", content_index=0, delta=text, **self._place
                )
            case OutputMessage():
                return OutputTextDelta(
                    type="response.output_text.delta", content_index=0, delta=text, logprobs=[], **self._place
                )
        return CallArgumentsDelta(type="response.function_call_arguments.delta", delta=text, **self._place)

    def _close(self, status: ItemStatus) -> Iterator[ItemEvent]:
        """The end of the item that is open, if one is."""
        item, text = self._open, "".join(self._texts)
        match item:
            case None:
                return
            case OutputCall():
                yield CallArgumentsDone(
                    type="response.function_call_arguments.done", name=item.name, arguments=text, **self._place
                )
            case OutputMessage():
                yield OutputTextDone(
                    type="response.output_text.done", content_index=0, text=text, logprobs=[], **self._place
                )
                yield self._part_done(item, text)
            case OutputReasoning():
                yield ReasoningTextDone(type="response.reasoning_text.done", content_index=0, text=text, **self._place)
                yield self._part_done(item, text)
        item = _ended(item, text, status)
        if isinstance(item, OutputReasoning) and self._seal is not None:
            item = item.model_copy(update={"encrypted_content": self._seal(text)})
        yield OutputItemDone(
            type="response.output_item.done",
            sequence_number=next(self._numbers),
            output_index=len(self.items),
            item=item,
        )
        self.items.append(item)
        self.pieces.append([*map(len, self._texts)])
        self._open = None

    def _part_done(self, item: OutputMessage | OutputReasoning, text: str) -> ItemEvent:
        return ContentPartDone(
            type="response.content_part.done", content_index=0, part=_part(item, text), **self._place
        )


def _ended(item: OutputItem, text: str, status: ItemStatus) -> OutputItem:
    match item:
        case OutputCompaction():
            return item
        case OutputCall():
            return item.model_copy(update={"arguments": text, "status": status})
        case OutputMessage():
            return item.model_copy(update={"content": [_part(item, text)], "status": status})
    return item.model_copy(update={"content": [_part(item, text)]})


def _begun(item: OutputItem) -> OutputItem:
    match item:
        case OutputCompaction():
            return item
        case OutputCall():
            return item.model_copy(update={"arguments": "", "status": "in_progress"})
        case OutputMessage():
            return item.model_copy(update={"content": [], "status": "in_progress"})
    return item.model_copy(update={"content": [], "encrypted_content": None})


def _text(item: OutputItem) -> str:
    if isinstance(item, OutputCompaction):
        return ""
    return item.arguments if isinstance(item, OutputCall) else "".join(part.text for part in item.content)


def _part(item: OutputMessage | OutputReasoning, text: str) -> OutputText | ReasoningText:
    if isinstance(item, OutputReasoning):
        return ReasoningText(type="reasoning_text", text=text)
    return OutputText(type="output_text", text=text, annotations=[], logprobs=[])
