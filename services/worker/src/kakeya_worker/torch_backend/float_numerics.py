"""Weights, activations and KV of one float type: float32 or bfloat16."""

from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.engine.seams.geometry import Integers
from kakeya_worker.engine.seams.raw_lane import slot_runs
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.torch_backend.numerics import KvType, Linear, LinearSpec, Norm, RowQueries, grouped, ungrouped
from kakeya_worker.torch_backend.weights import Weights


@dataclass(frozen=True)
class FloatRowView:
    """Which slots a row reads, as few runs as they form, and what of it must stay hidden.

    Attributes:
        sinks: slots of the sinks, one run or none.
        recent: slots of the other keys in the order of the history, at most two runs.
        hidden: the keys that a query must not see all the same; [queries, keys], True where hidden.
    """

    sinks: tuple[slice, ...]
    recent: tuple[slice, ...]
    hidden: Tensor


class FloatNumerics:
    """Torch's own operators; bits depend on the batch, the threads and the instruction set.

    Args:
        weights: of the checkpoint.
        kv_type: of everything.
    """

    def __init__(self, weights: Weights, kv_type: KvType) -> None:
        self._weights = weights
        self.kv_type = kv_type
        self.hidden_dtype = kv_type.dtype

    def norm(self, name: str, size: int, eps: float) -> Norm:
        weight = self._tensor(f"{name}.weight", (size,))

        def norm(x: Tensor) -> Tensor:  # in float32, rounded once
            wide = x.float()
            scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
            return (wide * scale * weight).to(x.dtype)

        return norm

    def linear(self, spec: LinearSpec) -> Linear:
        sizes = [size for _, size in spec.parts]
        names = spec.tensor_names
        weight = torch.cat(
            [self._tensor(f"{name}.weight", (size, spec.in_features)) for name, size in zip(names, sizes, strict=True)]
        )
        bias = None
        if spec.has_bias:
            bias = torch.cat([self._tensor(f"{name}.bias", (size,)) for name, size in zip(names, sizes, strict=True)])
        return lambda x: torch.nn.functional.linear(x, weight, bias)

    def embedding(self, name: str, vocab_size: int, hidden_size: int) -> "FloatEmbedding":
        return FloatEmbedding(self._tensor(f"{name}.weight", (vocab_size, hidden_size)))

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        return torch.nn.functional.silu(gate) * up

    def loaded(self) -> None:
        """Nothing is left to do."""

    def stored_keys(self, x: Tensor) -> Tensor:
        return x

    def stored_values(self, x: Tensor) -> Tensor:
        return x

    def view(self, row: Row) -> FloatRowView:
        slots_of = row.retention.slots
        sinks, recent = (np.arange(keys.start, keys.stop) for keys in (row.sinks, row.recent))
        return FloatRowView(_runs(slots_of(sinks)), _runs(slots_of(recent)), torch.from_numpy(~row.visible))

    def attend(self, queries: RowQueries, keys: Tensor, values: Tensor, view: FloatRowView) -> Tensor:
        num_queries, _, head_dim = queries.to_recent.shape
        to_sinks, to_recent = (grouped(q, keys.shape[0]) for q in (queries.to_sinks, queries.to_recent))
        runs = (*view.sinks, *view.recent)
        scores = [to_sinks @ keys[:, run].mT for run in view.sinks] + [
            to_recent @ keys[:, run].mT for run in view.recent
        ]
        weights = _softmax(torch.cat(scores, dim=-1), view.hidden, head_dim)  # [kv_heads, group * queries, keys]
        parts = weights.to(values.dtype).split([run.stop - run.start for run in runs], dim=-1)
        mixed = reduce(torch.add, (part @ values[:, run] for part, run in zip(parts, runs, strict=True)))
        return ungrouped(mixed, num_queries)

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._weights(name, shape).to(self.hidden_dtype)


class FloatEmbedding:
    """A table [vocab, hidden]."""

    def __init__(self, table: Tensor) -> None:
        self._table = table

    def rows(self, token_ids: Tensor) -> Tensor:
        return self._table[token_ids]

    def as_head(self) -> Linear:
        return lambda x: torch.nn.functional.linear(x, self._table)


def _softmax(scores: Tensor, hidden: Tensor, head_dim: int) -> Tensor:
    """Over the keys that are not hidden, in float32; scores [kv_heads, group * queries, keys]."""
    by_query: Tensor = scores.float().unflatten(1, (-1, hidden.shape[0])) * head_dim**-0.5
    return by_query.masked_fill(hidden, -torch.inf).softmax(dim=-1).flatten(1, 2)


def _runs(slots: Integers) -> tuple[slice, ...]:
    """Slots in their order as runs of adjacent ones."""
    return tuple(run for _, run in slot_runs(slots))
