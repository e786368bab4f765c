"""What the MLX backend declares to the conformance suite, and how to break it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kakeya_worker.conformance.declaration import Declaration, Mode, Mutation
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.mlx_backend import batch, verifier
from kakeya_worker.mlx_backend.batch import Batch
from kakeya_worker.mlx_backend.rotation import Rotation
from kakeya_worker.models import families

FLOAT32 = Mode("float32", "float32", "float32")
BFLOAT16 = Mode("bfloat16", "bfloat16", "bfloat16")


class _KeysOneAhead:
    """`Batch.own_angle`, which each layer asks for the keys' rotation first and for the queries' next."""

    def __init__(self, keys: Rotation, queries: Rotation) -> None:
        self._rotations = (keys, queries)
        self._num_calls = 0

    def __call__(self, x: mx.array) -> mx.array:
        rotation = self._rotations[self._num_calls % 2]
        self._num_calls += 1
        return rotation(x)


@contextmanager
def _key_angle_plus_one() -> Iterator[None]:
    def assemble(rows: Sequence[Row], frequencies: NDArray[np.float64]) -> Batch:
        whole = batch.assemble(rows, frequencies)
        ahead = batch.rotation(np.concatenate([row.positions for row in rows]) + 1, frequencies)
        return replace(whole, own_angle=_KeysOneAhead(ahead, whole.own_angle))  # type: ignore[arg-type]  # a stand-in

    with mock.patch.object(verifier, "assemble", assemble):
        yield


DECLARATION = Declaration(
    families=tuple(families.names()),
    modes=(FLOAT32, BFLOAT16),
    mutations={"key-angle-plus-one": Mutation(_key_angle_plus_one, (FLOAT32, BFLOAT16))},
)
