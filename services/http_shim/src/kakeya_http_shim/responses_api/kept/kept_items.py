"""The items of a conversation as a response keeps them: packed in blocks.

A response has all items of its conversation, and so has the next one. They are packed once: a block that is full goes
from response to response as it is. What the latest blocks were made of, or into, is remembered by their bytes, which a
request has to fetch first: it is the runtime that says whose a response is, and whether it is still kept.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Self, overload

from pydantic import TypeAdapter, ValidationError

from kakeya.text.rendering.kept import Kept
from kakeya_http_shim.responses_api.as_chat import Stretch, merged
from kakeya_http_shim.responses_api.input_items import InputItem, InputItems
from kakeya_http_shim.responses_api.kept.packing import Unpacking, Unreadable, compressed, listed, text

_ITEMS: Final = TypeAdapter[list[InputItem]](InputItems)
BLOCK_BYTES: Final = 16 << 10
"""Of a full one at least, unpacked. What is not full is packed anew for each response."""
_OF_CLIENT: Final = ("user", "system", "developer", "function_call_output")
_MARKS: Final = (b",", b"[", b"{")
_MARK_BYTES: Final = 400
"""What begins a value in a text, and what a value takes in memory beside its text, at most."""
_REMEMBERED_BYTES: Final = 32 << 20
"""Some 8,000 items of a few hundred letters: dozens of long conversations, or hundreds of short ones."""


@dataclass(frozen=True)
class Block:
    """Items that are packed together.

    Attributes:
        packed: as `packing` has them.
        kept: as they are kept. Several requests may have them at once.
        begun: the first of them as requests have them, where that is known.
        num_bytes: that all this takes in memory, at most.
    """

    packed: bytes
    kept: Sequence[dict[str, Any]]
    begun: Sequence[Stretch]
    num_bytes: int

    @classmethod
    def of(cls, packed: bytes, told: bytes, kept: Sequence[dict[str, Any]], begun: Sequence[Stretch] = ()) -> Self:
        """One with this text."""
        num_bytes = len(packed) + len(told) + sum(map(told.count, _MARKS)) * _MARK_BYTES
        return cls(packed, kept, begun, num_bytes)

    @cached_property
    def stretches(self) -> Sequence[Stretch]:
        """All of them as requests have them. Raises ValidationError."""
        num_begun = sum(len(each.items) for each in self.begun)
        return [*self.begun, stretch(self.kept[num_begun:])]

    def __len__(self) -> int:
        """Bytes in memory, for `Kept`."""
        return self.num_bytes


_blocks: Final = Kept[Block](_REMEMBERED_BYTES)


class KeptItems(Sequence[dict[str, Any]]):
    """The items, as they are kept.

    Args:
        new: those behind what is packed already.
        blocks: each but the last one is full.
    """

    def __init__(self, new: Sequence[dict[str, Any]] = (), blocks: Sequence[Block] = ()) -> None:
        self._new = new
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        return self._all[index]

    def followed_by(self, items: Iterable[dict[str, Any]]) -> "KeptItems":
        """With more behind them."""
        return KeptItems([*self._new, *items], self._blocks)

    @property
    def stretches(self) -> Sequence[Stretch]:
        """As a request has them. Raises ValidationError."""
        return [*(each for block in self._blocks for each in block.stretches), stretch(self._new)]

    @cached_property
    def blocks(self) -> Sequence[Block]:
        """All of them, packed. Each but the last one is full."""
        if self._blocks and not self._new:
            return self._blocks
        full, last = self._blocks[:-1], self._blocks[-1:]
        return [*full, *_made(last, self._new)]

    @property
    def packed(self) -> Sequence[bytes]:
        """Block by block."""
        return [block.packed for block in self.blocks]

    def is_like(self, other: "KeptItems") -> bool:
        """Whether they are the very same blocks, with equal items behind them."""
        return (
            len(self._blocks) == len(other._blocks)
            and all(map(operator.is_, self._blocks, other._blocks))
            and [*self._new] == [*other._new]
        )

    @classmethod
    def unpacked(cls, packed: Sequence[bytes], unpacking: Unpacking) -> "KeptItems":
        """Of such. Raises Unreadable: they are none, or too much of them is not remembered."""
        if not packed:
            raise Unreadable
        return cls(blocks=[_blocks.get(each, partial(_block, each, unpacking)) for each in packed])

    @cached_property
    def _all(self) -> Sequence[dict[str, Any]]:
        return [*(item for block in self._blocks for item in block.kept), *self._new]


def stretch(kept: Iterable[dict[str, Any]]) -> Stretch:
    """Items that are kept, as requests have them. Raises ValidationError."""
    return Stretch.of(_ITEMS.validate_python([*kept]))


def _block(packed: bytes, unpacking: Unpacking) -> Block:
    kept, told = unpacking.unpacked(packed)
    try:
        block = Block.of(packed, told, kept)
        _ = block.stretches
    except (ValidationError, TypeError) as error:
        raise Unreadable from error
    return block


def _made(last: Sequence[Block], new: Iterable[dict[str, Any]]) -> Iterator[Block]:
    """Each but the last one is full. They are remembered, in the place of the one that was the last.

    Args:
        last: the block that is not full yet, where there is one.
    """
    begun = merged(each for block in last for each in block.stretches)
    num_begun = sum(len(each.items) for each in begun)
    for block in last:
        _blocks.forget(block.packed)
    for items, texts in _parted([*(item for block in last for item in block.kept), *new]):
        told = listed(texts)
        packed = compressed(told)
        known = begun if num_begun <= len(items) else ()
        yield _blocks.get(packed, partial(Block.of, packed, told, items, known))
        begun, num_begun = [], 0


def _parted(items: Iterable[dict[str, Any]]) -> Iterator[tuple[Sequence[dict[str, Any]], Sequence[str]]]:
    """The items of each block, and their texts."""
    found: list[dict[str, Any]] = []
    texts: list[str] = []
    num_bytes = 0
    for item in items:
        if num_bytes >= BLOCK_BYTES and _is_of_client(item):
            yield found, texts
            found, texts, num_bytes = [], [], 0
        found.append(item)
        texts.append(text(item))
        num_bytes += len(texts[-1])
    yield found, texts


def _is_of_client(item: Mapping[str, Any]) -> bool:
    """No answer reaches from before such an item to behind it."""
    return item.get("role", item["type"]) in _OF_CLIENT
