"""What the torch backend declares to the conformance suite, and how to break it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial, reduce
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.conformance.declaration import Declaration, Mode, Mutation
from kakeya_worker.engine.seams.geometry import Integers, LaneGeometry
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.models import families
from kakeya_worker.torch_backend import batch, decoder
from kakeya_worker.torch_backend.batch import Batch
from kakeya_worker.torch_backend.exact import integer_product, kernel_decoder, numerics
from kakeya_worker.torch_backend.exact.arithmetic import fold, round_to
from kakeya_worker.torch_backend.exact.attention import int8_kv, key_blocks, over_int8
from kakeya_worker.torch_backend.exact.attention.exact_kv import FloatKv, IntegerKv
from kakeya_worker.torch_backend.exact.attention.int8_kv import as_slots, spread
from kakeya_worker.torch_backend.exact.attention.key_blocks import KeyBlocks
from kakeya_worker.torch_backend.exact.kernel.library import CHOICE_VARIABLE, variants
from kakeya_worker.torch_backend.numerics import FLOAT32 as KV_FLOAT32
from kakeya_worker.torch_backend.numerics import INT8 as KV_INT8
from kakeya_worker.torch_backend.rope import Rope, Rotation
from kakeya_worker.torch_backend.verifier import TorchVerifier

FLOAT32 = Mode("float32", "float32", "float32")
BFLOAT16 = Mode("bfloat16", "bfloat16", "bfloat16")
INT8 = Mode("int8", "bfloat16", "exact")
INT8_WIDE_KV = Mode("int8", "float32", "exact")
INT8_INTEGER_KV = Mode("int8", "int8", "exact")
_EXACT = (INT8, INT8_WIDE_KV, INT8_INTEGER_KV)

_FEW_TOKENS = 4
_EAGER = partial(mock.patch.dict, os.environ, {CHOICE_VARIABLE: "off"})  # what follows breaks what is in Python


class _KeysOneAhead:
    """`Batch.own_angle`, which each layer asks for the keys' rotation first and for the queries' next."""

    def __init__(self, keys: Rotation, queries: Rotation) -> None:
        self._rotations = (keys, queries)
        self._num_calls = 0

    def __call__(self, x: Tensor) -> Tensor:
        rotation = self._rotations[self._num_calls % 2]
        self._num_calls += 1
        return rotation(x)


@contextmanager
def _key_angle_plus_one() -> Iterator[None]:
    def assemble(rows: Sequence[Row], rope: Rope, numerics: Any) -> Batch:
        whole = batch.assemble(rows, rope, numerics)
        ahead = rope.at(np.concatenate([row.positions for row in rows]) + 1)
        return replace(whole, own_angle=_KeysOneAhead(ahead, whole.own_angle))  # type: ignore[arg-type]  # broken

    def key_positions(rows: Sequence[Row]) -> Integers:
        return np.concatenate([row.positions for row in rows]) + 1

    with (
        mock.patch.object(decoder, "assemble", assemble),
        mock.patch.object(kernel_decoder, "key_positions", key_positions),
    ):
        yield


@contextmanager
def _unrounded_kv() -> Iterator[None]:
    """A step of the eager form reads its own K and V in float32; only later steps find them rounded. Of int8, which
    has no room for those, it reads other numbers.
    """
    whole_allocate, whole_forward = TorchVerifier.allocate, TorchVerifier.forward
    smaller = staticmethod(lambda x: as_slots(x * 0.99))

    def allocate(self: TorchVerifier, geometry: LaneGeometry, num_lanes: int) -> None:
        if self._numerics.kv_type is not KV_INT8:
            self._numerics.kv_type = KV_FLOAT32
        whole_allocate(self, geometry, num_lanes)

    def forward(self: TorchVerifier, rows: Sequence[Row]) -> None:
        if self._numerics.kv_type is KV_INT8:
            with mock.patch.multiple(IntegerKv, stored_keys=lambda _, x: smaller(spread(x)), stored_values=smaller):
                whole_forward(self, rows)
            hidden = self.slab.final_hidden.clone()
            whole_forward(self, rows)
            self.slab.final_hidden.copy_(hidden)
            return
        whole_forward(self, rows)
        for tensor in (*self.slab.keys, *self.slab.values):
            tensor.copy_(round_to(tensor, torch.bfloat16))

    with (
        _EAGER(),
        mock.patch.object(TorchVerifier, "allocate", allocate),
        mock.patch.object(TorchVerifier, "forward", forward),
        mock.patch.object(FloatKv, "rounded", lambda _, x: x),
    ):
        yield


def _ring_order_sum() -> AbstractContextManager[Any]:
    """Keys are summed in blocks of neighbouring slots, as they lie in memory."""
    whole = key_blocks.of

    def of(row: Row) -> KeyBlocks:
        blocks = whole(row)
        slots = np.where(blocks.is_present, blocks.slots, np.iinfo(np.int64).max)
        by_slot = np.argsort(slots[blocks.num_sinks :], kind="stable") + blocks.num_sinks
        order = np.concatenate([np.arange(blocks.num_sinks), by_slot])
        return KeyBlocks(
            blocks.slots[order],
            blocks.is_present[order],
            blocks.num_sinks,
            np.ascontiguousarray(blocks.visible[:, order]),
        )

    return mock.patch.object(key_blocks, "of", of)


@contextmanager
def _batch_dependent_reduction() -> Iterator[None]:
    """Norms of the eager form add in another order for a few tokens than for many, as a library's kernels do."""

    def dependent_fold(x: Tensor, dim: int) -> Tensor:
        return fold(x, dim) if len(x) > _FEW_TOKENS else reduce(torch.add, x.unbind(dim))

    with _EAGER(), mock.patch.object(numerics, "fold", dependent_fold):
        yield


@contextmanager
def _neighbours_scale() -> Iterator[None]:
    """Each slot is read with the scale of the slot before it."""

    def of_slots(slots: Tensor) -> tuple[Tensor, Tensor]:
        numbers, scales = int8_kv.of_slots(slots)
        return numbers, scales.roll(1, dims=-1)

    with _EAGER(), mock.patch.object(over_int8, "of_slots", of_slots):
        yield


@contextmanager
def _weights_rounded_down() -> Iterator[None]:
    with _EAGER(), mock.patch.object(over_int8, "_whole", torch.floor):
        yield


@contextmanager
def _scales_not_in_weights() -> Iterator[None]:
    """Weights become whole numbers by themselves, and values are read with their scales."""
    whole = over_int8._mix

    def mix(scores: Tensor, hidden: Tensor, values: Tensor, scales: Tensor) -> Tensor:
        return whole(scores, hidden, values * scales.nan_to_num()[..., None], torch.ones_like(scales))

    with _EAGER(), mock.patch.object(over_int8, "_mix", mix):
        yield


def _environments() -> dict[str, dict[str, str]]:
    """The eager form as other processors run it, and every variant of the kernel but the one that is chosen anyway."""
    eager = {"eager": {}, "eager-aten-default": {"ATEN_CPU_CAPABILITY": "default"}}
    if torch.backends.cpu.get_cpu_capability() != "AVX2":  # else the same instructions run anyway
        eager["eager-aten-avx2"] = {"ATEN_CPU_CAPABILITY": "avx2"}
    if integer_product.native_is_fast():  # else no int8 product is oneDNN's
        eager["eager-onednn-avx2"] = {"ONEDNN_MAX_CPU_ISA": "AVX2"}  # it saturates there
    return {
        **{name: {**variables, CHOICE_VARIABLE: "off"} for name, variables in eager.items()},
        **{f"kernel-{variant}": {CHOICE_VARIABLE: variant} for variant in variants()[1:]},
    }


DECLARATION = Declaration(
    families=tuple(families.names()),
    modes=(FLOAT32, BFLOAT16, *_EXACT),
    environments=_environments(),
    mutations={
        "key-angle-plus-one": Mutation(_key_angle_plus_one, (FLOAT32, BFLOAT16, *_EXACT)),
        "unrounded-kv": Mutation(_unrounded_kv, (INT8, INT8_INTEGER_KV)),
        "ring-order-sum": Mutation(_ring_order_sum, _EXACT),
        "batch-dependent-reduction": Mutation(_batch_dependent_reduction, _EXACT),
        "neighbours-scale": Mutation(_neighbours_scale, (INT8_INTEGER_KV,)),
        "weights-rounded-down": Mutation(_weights_rounded_down, (INT8_INTEGER_KV,)),
        "scales-not-in-weights": Mutation(_scales_not_in_weights, (INT8_INTEGER_KV,)),
    },
)
