"""How a model's parts are held and computed: in floats, or exactly.

`Decoder` says what is computed; a `Numerics` says with which weights and in which order of operations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from kakeya_worker.engine.seams.int8_slots import SCALE_BYTES
from kakeya_worker.engine.seams.row import Row

RowView = TypeVar("RowView")

Norm = Callable[[Tensor], Tensor]
"""[..., size] -> the same shape."""

Linear = Callable[[Tensor], Tensor]
"""[tokens, in_features] -> [tokens, out_features]."""


@dataclass(frozen=True)
class KvType:
    """A type of K and V.

    Attributes:
        name: as `--kv-dtype` has it.
        dtype: of the elements of a slot.
        num_added: elements that a slot has behind a head's numbers: their scale.
    """

    name: str
    dtype: torch.dtype
    num_added: int = 0

    def slot_size(self, head_dim: int) -> int:
        """The elements of a head's slot."""
        return head_dim + self.num_added


BFLOAT16: Final = KvType("bfloat16", torch.bfloat16)
FLOAT32: Final = KvType("float32", torch.float32)
INT8: Final = KvType("int8", torch.uint8, SCALE_BYTES)
"""Exact mode alone: numbers of 8 bits, and a bfloat16 for each head; docs/numerics.md, "Int8 KV"."""
KV_TYPES: Final = {each.name: each for each in (FLOAT32, BFLOAT16, INT8)}


@dataclass(frozen=True)
class LinearSpec:
    """One linear layer, made of several over the same input.

    Attributes:
        prefix: of the tensors' names.
        parts: (name, out_features) of each, one below the other.
        in_features: of all.
        has_bias: in all or none.
    """

    prefix: str
    parts: tuple[tuple[str, int], ...]
    in_features: int
    has_bias: bool = False

    @property
    def tensor_names(self) -> list[str]:
        return [f"{self.prefix}.{part}" for part, _ in self.parts]


@dataclass(frozen=True)
class RowQueries:
    """One row's queries in one layer; both [queries, heads, head_dim]."""

    to_sinks: Tensor
    to_recent: Tensor


class Embedding(Protocol):
    """The table of token embeddings, [vocab, hidden]."""

    def rows(self, token_ids: Tensor) -> Tensor:
        """[tokens] -> [tokens, hidden]."""
        ...

    def as_head(self) -> Linear:
        """The same table as the output head."""
        ...


class Numerics(Protocol, Generic[RowView]):
    """One way to hold weights and to compute. Loading raises ModelRefused where a tensor is missing or misshapen.

    Attributes:
        kv_type: of K and V.
        hidden_dtype: of activations between layers.
    """

    kv_type: KvType
    hidden_dtype: torch.dtype

    def norm(self, name: str, size: int, eps: float) -> Norm:
        """Root mean square norm (arXiv 1910.07467) with the checkpoint's weight of that name."""
        ...

    def linear(self, spec: LinearSpec) -> Linear: ...

    def embedding(self, name: str, vocab_size: int, hidden_size: int) -> Embedding: ...

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) * up (arXiv 2002.05202)."""
        ...

    def loaded(self) -> None:
        """Called once the whole model is."""
        ...

    def stored_keys(self, x: Tensor) -> Tensor:
        """Rotated keys as the slab holds them; [..., head_dim] -> [..., slot]."""
        ...

    def stored_values(self, x: Tensor) -> Tensor:
        """As `stored_keys`."""
        ...

    def view(self, row: Row) -> RowView:
        """What `attend` needs to know of a row, made once a step."""
        ...

    def attend(self, queries: RowQueries, keys: Tensor, values: Tensor, view: RowView) -> Tensor:
        """Grouped-query attention of one row over its lane, under the law.

        Args:
            queries: rotated.
            keys: the lane's, as they are stored; [kv_heads, slots, slot].
            values: as keys.
            view: what the queries see.

        Returns:
            [queries, heads * head_dim].
        """
        ...


def grouped(queries: Tensor, num_kv_heads: int) -> Tensor:
    """[queries, heads, head_dim] -> [kv_heads, group * queries, head_dim]; a group of heads shares its KV head."""
    by_group: Tensor = queries.unflatten(1, (num_kv_heads, -1)).permute(1, 2, 0, 3)
    return by_group.flatten(1, 2)


def ungrouped(mixed: Tensor, num_queries: int) -> Tensor:
    """[kv_heads, group * queries, head_dim] -> [queries, heads * head_dim]."""
    by_query: Tensor = mixed.unflatten(1, (-1, num_queries)).permute(2, 0, 1, 3)
    return by_query.flatten(1)
