"""What the torch backend declares to the conformance suite, and how to break it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.conformance.declaration import Declaration, Mode, Mutation
from kakeya_worker.engine.geometry import LaneGeometry
from kakeya_worker.engine.row import Row
from kakeya_worker.torch_backend import batch, families, verifier
from kakeya_worker.torch_backend.batch import Batch
from kakeya_worker.torch_backend.exact import attention, numerics
from kakeya_worker.torch_backend.exact.arithmetic import fold, round_to
from kakeya_worker.torch_backend.exact.attention import ExactRowView
from kakeya_worker.torch_backend.rope import Rope, Rotation
from kakeya_worker.torch_backend.verifier import TorchVerifier

FLOAT32 = Mode("float32", "float32", "float32")
BFLOAT16 = Mode("bfloat16", "bfloat16", "bfloat16")
INT8 = Mode("int8", "bfloat16", "exact")
INT8_WIDE_KV = Mode("int8", "float32", "exact")

_FEW_TOKENS = 4


class _KeysOneAhead:
    """`Batch.own_angle`, which each layer asks for the keys' rotation first and for the queries' next."""

    def __init__(self, keys: Rotation, queries: Rotation) -> None:
        self._rotations = (keys, queries)
        self._num_calls = 0

    def __call__(self, x: Tensor) -> Tensor:
        rotation = self._rotations[self._num_calls % 2]
        self._num_calls += 1
        return rotation(x)


def _key_angle_plus_one() -> AbstractContextManager[Any]:
    def assemble(rows: Sequence[Row], rope: Rope, numerics: Any) -> Batch:
        whole = batch.assemble(rows, rope, numerics)
        ahead = rope.at(np.concatenate([row.positions for row in rows]) + 1)
        return replace(whole, own_angle=_KeysOneAhead(ahead, whole.own_angle))  # type: ignore[arg-type]  # broken

    return mock.patch.object(verifier, "assemble", assemble)


@contextmanager
def _unrounded_kv() -> Iterator[None]:
    """A step reads its own K and V in float32; only later steps find them rounded."""
    whole_allocate, whole_forward = TorchVerifier.allocate, TorchVerifier.forward

    def allocate(self: TorchVerifier, geometry: LaneGeometry, num_lanes: int) -> None:
        self._numerics.kv_dtype = torch.float32
        whole_allocate(self, geometry, num_lanes)

    def forward(self: TorchVerifier, rows: Sequence[Row]) -> None:
        whole_forward(self, rows)
        for tensor in (*self.slab.keys, *self.slab.values):
            tensor.copy_(round_to(tensor, torch.bfloat16))

    with (
        mock.patch.object(TorchVerifier, "allocate", allocate),
        mock.patch.object(TorchVerifier, "forward", forward),
        mock.patch.object(numerics.ExactNumerics, "round_kv", lambda _, x: x),
    ):
        yield


def _ring_order_sum() -> AbstractContextManager[Any]:
    """Keys are summed in blocks of neighbouring slots, as they lie in memory."""
    whole = attention.view

    def view(row: Row) -> ExactRowView:
        by_position = whole(row)
        is_absent = torch.zeros(len(by_position.slots), dtype=torch.bool).index_fill_(0, by_position.absent, 1)
        slots = by_position.slots.masked_fill(is_absent, torch.iinfo(torch.int64).max)
        sinks, recent = slots[: by_position.num_sinks], slots[by_position.num_sinks :]
        order = torch.cat([torch.arange(len(sinks)), recent.argsort() + len(sinks)])
        return ExactRowView(
            slots=by_position.slots[order],
            absent=is_absent[order].nonzero().flatten(),
            num_sinks=by_position.num_sinks,
            visible=by_position.visible[:, order],
        )

    return mock.patch.object(attention, "view", view)


def _batch_dependent_reduction() -> AbstractContextManager[Any]:
    """Norms add in another order for a few tokens than for many, as a library's kernels do."""

    def dependent_fold(x: Tensor, dim: int) -> Tensor:
        return fold(x, dim) if len(x) > _FEW_TOKENS else reduce(torch.add, x.unbind(dim))

    return mock.patch.object(numerics, "fold", dependent_fold)


DECLARATION = Declaration(
    families=tuple(families.names()),
    modes=(FLOAT32, BFLOAT16, INT8, INT8_WIDE_KV),
    mutations={
        "key-angle-plus-one": Mutation(_key_angle_plus_one, (FLOAT32, BFLOAT16, INT8, INT8_WIDE_KV)),
        "unrounded-kv": Mutation(_unrounded_kv, (INT8,)),
        "ring-order-sum": Mutation(_ring_order_sum, (INT8, INT8_WIDE_KV)),
        "batch-dependent-reduction": Mutation(_batch_dependent_reduction, (INT8, INT8_WIDE_KV)),
    },
)
