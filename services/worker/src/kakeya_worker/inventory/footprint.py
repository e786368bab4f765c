"""The memory that a model would take in a worker."""

from typing import Final, NamedTuple

from kakeya_worker import sizing
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.settings import WorkerSettings

_KV_BYTES: Final = {"gguf": 2, "int8": 2, "bfloat16": 2, "float32": 4}
_WEIGHT_BITS: Final = {"int8": 8.25, "bfloat16": 16, "float32": 32}  # two bytes of a scale are for 64 weights of int8
_SINK: Final[int] = WorkerSettings.model_fields["sink"].default
_CHUNK: Final[int] = WorkerSettings.model_fields["chunk_tokens"].default


class Footprint(NamedTuple):
    """In bytes.

    Attributes:
        weights: all matrices; norms and biases are a hundredth of them at most.
        token: the KV of one token.
        lane: the KV of one session, with its slack.
        sink, window: of such a lane, in tokens.
    """

    weights: int
    token: int
    lane: int
    sink: int
    window: int


def footprint(
    config: ModelConfig, weights: str, file_bytes: int, *, sink: int = _SINK, window: int | None = None
) -> Footprint | None:
    """Of a model whose weights are held in some type of numbers; None where no lane of it fits.

    Args:
        window: None: as of a worker that is told nothing of sizes.
        weights: gguf, int8, bfloat16 or float32.
        file_bytes: of the checkpoint, whose blocks take about as much in memory.
    """
    kv_bytes = config.kv_elements_per_token * _KV_BYTES[weights]
    most = config.bound_on_positions[0]
    lane = sizing.usual_lane(most, kv_bytes, sink=sink, chunk=_CHUNK) if window is None else None
    if window is not None and sink + window <= most:
        lane = LaneGeometry(sink, window, _CHUNK)
    if lane is None:
        return None
    in_memory = file_bytes if weights == "gguf" else int(config.num_weights * _WEIGHT_BITS[weights]) // 8
    return Footprint(in_memory, kv_bytes, lane.num_slots * kv_bytes, lane.sink, lane.window)
