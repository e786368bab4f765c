"""The items of a conversation as a response keeps them: packed in blocks.

A response has all items of its conversation, and so has the next one. They are packed once: a block that is full goes
from response to response as it is. What is made of the blocks that were asked for last is remembered by their bytes,
which a request has to fetch first: it is the runtime that says whose a response is, and whether it is still kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, overload

from pydantic import TypeAdapter, ValidationError

from kakeya.text.rendering.kept import Kept
from kakeya_http_shim.responses_api.as_chat import Stretch
from kakeya_http_shim.responses_api.input_items import InputItem, InputItems
from kakeya_http_shim.responses_api.kept.packing import Unpacking, Unreadable, packed_list, text

_ITEMS: Final = TypeAdapter[list[InputItem]](InputItems)
BLOCK_BYTES: Final = 16 << 10
"""Of a full one at least, unpacked. What is not full is packed anew for each response."""
_OF_CLIENT: Final = ("user", "system", "developer", "function_call_output")
_MARKS: Final = (b",", b"[", b"{")
_MARK_BYTES: Final = 400
"""What begins a value in a text, and what a value takes in memory beside its text, at most."""
_REMEMBERED_BYTES: Final = 32 << 20
"""Some 8,000 items of a few hundred letters: dozens of long conversations, and short ones have no full block."""


@dataclass(frozen=True)
class Block:
    """Items that are packed together.

    Attributes:
        packed: as `packing` has them.
        kept, stretch: as they are kept, and as requests have them. Several may do so at once.
        num_bytes: that all this takes in memory, at most.
    """

    packed: bytes
    kept: Sequence[dict[str, Any]]
    stretch: Stretch
    num_bytes: int

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
        return [*(block.stretch for block in self._blocks), stretch(self._new)]

    @cached_property
    def packed(self) -> Sequence[bytes]:
        """Block by block."""
        if self._blocks and not self._new:
            return [block.packed for block in self._blocks]
        full, last = self._blocks[:-1], self._blocks[-1:]
        begun = [item for block in last for item in block.kept]
        return [*(block.packed for block in full), *_packed([*begun, *self._new])]

    @classmethod
    def unpacked(cls, packed: Sequence[bytes], unpacking: Unpacking) -> "KeptItems":
        """Of such. Raises Unreadable: they are none, or too much of them is not remembered."""
        *full, last = packed
        blocks = [_blocks.get(each, partial(_block, each, unpacking)) for each in full]
        return cls(blocks=[*blocks, _block(last, unpacking)])

    @cached_property
    def _all(self) -> Sequence[dict[str, Any]]:
        return [*(item for block in self._blocks for item in block.kept), *self._new]


def stretch(kept: Iterable[dict[str, Any]]) -> Stretch:
    """Items that are kept, as requests have them. Raises ValidationError."""
    return Stretch.of(_ITEMS.validate_python([*kept]))


def _block(packed: bytes, unpacking: Unpacking) -> Block:
    kept, told = unpacking.unpacked(packed)
    num_bytes = len(packed) + len(told) + sum(map(told.count, _MARKS)) * _MARK_BYTES
    try:
        return Block(packed, kept, stretch(kept), num_bytes)
    except (ValidationError, TypeError) as error:
        raise Unreadable from error


def _packed(items: Iterable[dict[str, Any]]) -> list[bytes]:
    """Each but the last one is a full block."""
    found: list[bytes] = []
    texts: list[str] = []
    num_bytes = 0
    for item in items:
        if num_bytes >= BLOCK_BYTES and _is_of_client(item):
            found.append(packed_list(texts))
            texts, num_bytes = [], 0
        texts.append(text(item))
        num_bytes += len(texts[-1])
    return [*found, packed_list(texts)]


def _is_of_client(item: Mapping[str, Any]) -> bool:
    """No answer reaches from before such an item to behind it."""
    return item.get("role", item["type"]) in _OF_CLIENT
