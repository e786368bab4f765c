"""The slab: all KV of a worker, allocated once."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.raw_lane import RawLane
from kakeya_worker.engine.seams.raw_numbers import RawNumbers
from kakeya_worker.models.model_config import ModelConfig

_RAW = {2: np.uint16, 4: np.uint32}


class Lane:
    """One session's K and V, layer by layer.

    Each lane has arrays of its own, so that a step touches those of its lanes only. MLX writes to an array in place as
    long as nothing else holds its memory; else it copies all of it first.

    Attributes:
        keys: rotated at their own index, one array a layer, each [kv_heads, slots, head_dim].
        values: as keys.
    """

    def __init__(self, geometry: LaneGeometry, config: ModelConfig, dtype: mx.Dtype) -> None:
        shape = (config.num_kv_heads, geometry.num_slots, config.head_dim)
        self.keys = [mx.zeros(shape, dtype) for _ in range(config.num_layers)]
        self.values = [mx.zeros(shape, dtype) for _ in range(config.num_layers)]

    @property
    def arrays(self) -> list[mx.array]:
        """All of them."""
        return [*self.keys, *self.values]


class Slab:
    """Every lane, and each lane's final hidden vector.

    Attributes:
        lanes: by their number.
    """

    def __init__(self, geometry: LaneGeometry, num_lanes: int, config: ModelConfig, dtype: mx.Dtype) -> None:
        self._dtype = dtype
        self.lanes = [Lane(geometry, config, dtype) for _ in range(num_lanes)]
        mx.eval([lane.arrays for lane in self.lanes])
        # On the host, where a lane's is written without those of others; [lanes, hidden].
        self._final_hidden = raw_numbers(mx.zeros((num_lanes, config.hidden_size), dtype)).copy()

    def keep_final_hidden(self, lanes: Sequence[int], vectors: mx.array) -> None:
        """Those of some lanes, after the last norm; vectors [lanes, hidden]."""
        self._final_hidden[list(lanes)] = raw_numbers(vectors)

    def final_hidden(self, lanes: Sequence[int]) -> mx.array:
        """[lanes, hidden]."""
        return mx.array(self._final_hidden[list(lanes)]).view(self._dtype)

    def raw_lane(self, lane: int) -> RawLane:
        """The same memory, of which no array can be written in place by MLX while this is there."""
        held = self.lanes[lane]
        keys, values = ([raw_numbers(array) for array in arrays] for arrays in (held.keys, held.values))
        return RawLane(keys, values, self._final_hidden[lane])

    def fill(self, number: float) -> None:
        """Every slot of every lane, and the final hidden vectors."""
        for lane in self.lanes:
            for array in lane.arrays:
                array[:] = mx.full(array.shape, number, array.dtype)
        mx.eval([lane.arrays for lane in self.lanes])
        self._final_hidden[:] = raw_numbers(mx.array(number, self._dtype))


def raw_numbers(array: mx.array) -> RawNumbers:
    """The same memory, of an evaluated array; MLX makes nothing for that. One that lies in no order is an error."""
    flat = np.frombuffer(array, _RAW[array.itemsize])  # type: ignore[call-overload]  # nothing says that it is a buffer
    raw: RawNumbers = flat.reshape(array.shape)
    return raw
