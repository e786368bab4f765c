"""The tensors of a GGUF file by the Hub's names, as arrays; the rows of queries and keys lie as the Hub has them."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.gguf_file import GgufFile
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.gguf import gguf_config, tensor_names
from kakeya_worker.models.gguf.block_integers import BLOCK_TYPES, BlockIntegers, BlockType, integers
from kakeya_worker.models.gguf.dequantization import dequantized

_PLAIN: Final = {"F32": ("float32", "<f4"), "F16": ("float16", "<f2"), "BF16": ("bfloat16", "<u2")}
"""Types that are no blocks: what config.json would call them, and how an array holds them. It knows no bfloat16."""


class GgufTensors:
    """One tensor is read at a time; each is a copy.

    Args:
        path: of the file, or of one of several.

    Attributes:
        files: in their order.
        num_weights: how many numbers all matrices hold.

    Raises:
        ModelRefused: it cannot be read, or holds what cannot run.
    """

    def __init__(self, path: Path) -> None:
        self._file = opened(path)
        self._stored_name = tensor_names.hub_names(self._file.tensors)
        self.files = self._file.files
        self.num_weights = self._file.num_weights
        config = gguf_config.config_of(self._file)
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
        self._heads = heads if gguf_config.architecture_of(self._file).permutes else {"attn_q": 0, "attn_k": 0}

    @property
    def names(self) -> Collection[str]:
        """The Hub's."""
        return self._stored_name.keys()

    @property
    def has_blocks(self) -> bool:
        """Whether `read_blocks` finds any."""
        return any(tensor.type.name in BLOCK_TYPES for _, tensor in self._file.tensors.values())

    @property
    def dtype(self) -> str:
        """Of the embedding, as config.json would say it; blocks are read as float32."""
        return _PLAIN.get(self._file.tensors[tensor_names.EMBEDDING][1].type.name, _PLAIN["F32"])[0]

    def head_is_embedding(self) -> bool:
        """Never: a file that has a table for the head has it since it is another one."""
        return False

    def read(self, name: str) -> NDArray[Any]:
        """A tensor in float32 or float16; bfloat16 as the uint16 of its bits. Raises ModelRefused."""
        stored = self._stored_name[name]
        _, tensor = self._file.tensors[stored]
        if tensor.type.name in _PLAIN:
            numbers: NDArray[Any] = np.frombuffer(self._file.bytes_of(stored), _PLAIN[tensor.type.name][1]).copy()
        else:
            numbers = dequantized(self._file.bytes_of(stored), tensor.type, np.prod(tensor.shape, dtype=int), stored)
        return self._as_the_hub_has(stored, numbers.reshape(tensor.shape))

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor."""
        return tuple(self._file.tensors[self._stored_name[name]][1].shape)

    def block_type(self, name: str) -> BlockType | None:
        """Of a matrix whose numbers are whole ones with scales; None of another one."""
        return BLOCK_TYPES.get(self._file.tensors[self._stored_name[name]][1].type.name)

    def read_blocks(self, name: str) -> tuple[BlockType, BlockIntegers] | None:
        """A matrix as the whole numbers and scales that its blocks hold; None where it is of another type."""
        stored = self._stored_name[name]
        _, tensor = self._file.tensors[stored]
        kind = self.block_type(name)
        if kind is None:
            return None
        rows = np.frombuffer(self._file.bytes_of(stored), np.uint8).reshape(tensor.shape[0], -1)  # [rows, bytes]
        return kind, integers(kind, self._as_the_hub_has(stored, rows).reshape(-1, tensor.type.block_bytes))

    def _as_the_hub_has(self, stored: str, rows: NDArray[Any]) -> NDArray[Any]:
        num_heads = tensor_names.rotated_heads(stored, self._heads)
        return in_halves(rows, num_heads) if num_heads else rows


def opened(path: Path) -> GgufFile:
    """Raises ModelRefused."""
    try:
        return GgufFile(path)
    except GgufError as error:
        raise ModelRefused(str(error)) from error


def in_halves(rows: NDArray[Any], num_heads: int) -> NDArray[Any]:
    """Rows of queries or keys that lie in pairs that rotate together: first all first ones of a head, then the others.

    Raises:
        ModelRefused: so many heads cannot share them.
    """
    if len(rows) % (2 * num_heads):
        raise ModelRefused(f"{len(rows)} rows cannot be those of {num_heads} heads that rotate")
    pairs = rows.reshape(num_heads, -1, 2, *rows.shape[1:])  # [heads, head_dim / 2, 2, in_features]
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
