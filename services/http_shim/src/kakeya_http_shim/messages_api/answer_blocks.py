"""An answer's blocks: made of its pieces as they come, or of all of it."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import blake2b

from kakeya_http_shim.messages_api.answer_events import (
    BlockAnswer,
    BlockDelta,
    BlockStart,
    BlockStop,
    SignaturePiece,
    StreamEvent,
    TextAnswer,
    TextPiece,
    ThinkingAnswer,
    ThinkingPiece,
)
from kakeya_http_shim.text.delta import Delta

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
    if delta.content:
        found.append(TextAnswer(type="text", text=delta.content))
    return found


class StreamedBlocks:
    """Those of one answer as events; put together by a client they are those of the whole answer.

    Args:
        hides_thoughts: they come without their text.
    """

    def __init__(self, *, hides_thoughts: bool) -> None:
        self._hides_thoughts = hides_thoughts
        self._index = -1
        self._open: type[BlockAnswer] | None = None
        self._thought: list[str] = []

    def push(self, delta: Delta) -> Iterator[StreamEvent]:
        """A piece of the answer."""
        if delta.reasoning:
            yield from self._opened(ThinkingAnswer(type="thinking", thinking="", signature=""))
            self._thought.append(delta.reasoning)
            if not self._hides_thoughts:
                yield self._delta(ThinkingPiece(type="thinking_delta", thinking=delta.reasoning))
        if delta.content:
            yield from self._opened(TextAnswer(type="text", text=""))
            yield self._delta(TextPiece(type="text_delta", text=delta.content))

    def close(self) -> Iterator[StreamEvent]:
        """The end of the block that is open, if one is."""
        if self._open is None:
            return
        if self._open is ThinkingAnswer:
            signed = signature("".join(self._thought))
            self._thought.clear()
            yield self._delta(SignaturePiece(type="signature_delta", signature=signed))
        self._open = None
        yield BlockStop(type="content_block_stop", index=self._index)

    def _opened(self, block: BlockAnswer) -> Iterator[StreamEvent]:
        if self._open is type(block):
            return
        yield from self.close()
        self._open = type(block)
        self._index += 1
        yield BlockStart(type="content_block_start", index=self._index, content_block=block)

    def _delta(self, piece: TextPiece | ThinkingPiece | SignaturePiece) -> BlockDelta:
        return BlockDelta(type="content_block_delta", index=self._index, delta=piece)
