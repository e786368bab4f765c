"""An answer's blocks: made of its pieces as they come, or of all of it."""

import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from kakeya_http_shim.messages_api.answer_events import (
    BlockAnswer,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputPiece,
    Piece,
    SignaturePiece,
    StreamEvent,
    TextAnswer,
    TextPiece,
    ThinkingAnswer,
    ThinkingPiece,
    ToolUseAnswer,
)
from kakeya_http_shim.text.delta import Delta
from kakeya_http_shim.tools.deltas import ArgumentText, CallBegun, Content, Unfinished, joined
from kakeya_http_shim.tools.deltas import Delta as Part

_PERSON = b"kakeya thought"


def signature(thought: str) -> str:
    """Of a thought. Clients ask for one, and send it back; nobody looks at it."""
    return b64encode(blake2b(thought.encode(), digest_size=32, person=_PERSON).digest()).decode()


def blocks(delta: Delta, *, hides_thoughts: bool) -> list[BlockAnswer]:
    """Those of a whole answer.

    Args:
        hides_thoughts: they come without their text.
    """
    found: list[BlockAnswer] = []
    if delta.reasoning:
        shown = "" if hides_thoughts else delta.reasoning
        found.append(ThinkingAnswer(type="thinking", thinking=shown, signature=signature(delta.reasoning)))
    calls = joined(delta.parts).calls
    for part in delta.parts:
        match part:
            case Content(text):
                found.append(TextAnswer(type="text", text=text))
            case CallBegun(index, id_, name):
                arguments = _value(calls[index].arguments)
                found.append(ToolUseAnswer(type="tool_use", id=id_, name=name, input=arguments))
    return found


def _value(arguments: str) -> dict[str, Any]:
    """JSON may spell halves of characters, which no answer in UTF-8 can hold: these are replaced."""
    value: dict[str, Any] = json.loads(json.dumps(json.loads(arguments), ensure_ascii=False).encode(errors="replace"))
    return value


class StreamedBlocks:
    """Those of one answer as events; put together by a client they are those of the whole answer.

    Args:
        hides_thoughts: they come without their text.

    Attributes:
        unfinished: the text of a call that the answer ended within, behind others; "" without one.
    """

    def __init__(self, *, hides_thoughts: bool) -> None:
        self.unfinished = ""
        self._hides_thoughts = hides_thoughts
        self._index = -1
        self._open: type[BlockAnswer] | None = None
        self._thought: list[str] = []

    def push(self, delta: Delta) -> Iterator[StreamEvent]:
        """A piece of the answer."""
        if delta.reasoning:
            yield from self._within(ThinkingAnswer(type="thinking", thinking="", signature=""))
            self._thought.append(delta.reasoning)
            if not self._hides_thoughts:
                yield self._delta(ThinkingPiece(type="thinking_delta", thinking=delta.reasoning))
        for part in delta.parts:
            yield from self._told(part)

    def close(self) -> Iterator[StreamEvent]:
        """The end of the block that is open, if one is."""
        if self._open is None:
            return
        if self._open is ThinkingAnswer:
            signed = signature("".join(self._thought))
            yield self._delta(SignaturePiece(type="signature_delta", signature=signed))
        self._open = None
        yield BlockStop(type="content_block_stop", index=self._index)

    def _told(self, part: Part) -> Iterator[StreamEvent]:
        match part:
            case Content(text):
                yield from self._within(TextAnswer(type="text", text=""))
                yield self._delta(TextPiece(type="text_delta", text=text))
            case CallBegun(_, id_, name):
                yield from self.close()
                yield from self._within(ToolUseAnswer(type="tool_use", id=id_, name=name, input={}))
            case ArgumentText(_, text):
                yield self._delta(InputPiece(type="input_json_delta", partial_json=text))
            case Unfinished(text):
                self.unfinished = text

    def _within(self, block: BlockAnswer) -> Iterator[StreamEvent]:
        """The beginning of a block, unless one of its kind is open."""
        if self._open is type(block):
            return
        yield from self.close()
        self._open = type(block)
        self._index += 1
        yield BlockStart(type="content_block_start", index=self._index, content_block=block)

    def _delta(self, piece: Piece) -> BlockDelta:
        return BlockDelta(type="content_block_delta", index=self._index, delta=piece)
