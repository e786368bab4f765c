"""The memory that a model would take in a worker."""

from typing import Final, NamedTuple

from kakeya_worker import sizing
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.settings import WorkerSettings

_KV_DTYPES: Final = {"gguf": "bfloat16", "int8": "bfloat16"}  # that "auto" is; that of other weights is their own
_WEIGHT_BITS: Final = {"int8": 8.25, "bfloat16": 16, "float32": 32}  # two bytes of a scale are for 64 weights of int8
_SINK: Final[int] = WorkerSettings.model_fields["sink"].default
_CHUNK: Final[int] = WorkerSettings.model_fields["chunk_tokens"].default


class Draft(NamedTuple):
    """What a draft model adds, in bytes: its weights, and a slot of each lane of its own."""

    weights: int
    token: int


class Footprint(NamedTuple):
    """In bytes.

    Attributes:
        weights: all matrices; norms and biases are a hundredth of them at most. Those of a draft model with them.
        token: the KV of one token, without a draft model's, which no snapshot has.
        lane: the KV of one session, with its slack, and with the lane of a draft model.
        sink, window: of such a lane, in tokens.
    """

    weights: int
    token: int
    lane: int
    sink: int
    window: int


def footprint(
    config: ModelConfig,
    weights: str,
    file_bytes: int,
    *,
    kv_dtype: str = "auto",
    sink: int = _SINK,
    window: int | None = None,
    draft: Draft | None = None,
) -> Footprint | None:
    """Of a model whose weights are held in some type of numbers; None where no lane of it fits.

    Args:
        draft: of the model that drafts for it.
        window: None: as of a worker that is told nothing of sizes.
        weights: gguf, int8, bfloat16 or float32.
        file_bytes: of the checkpoint, whose blocks take about as much in memory.
        kv_dtype: as a worker's flag has it.
    """
    chosen = _KV_DTYPES.get(weights, weights) if kv_dtype == "auto" else kv_dtype
    kv_bytes = config.kv_bytes_per_token(chosen)
    most = config.bound_on_positions[0]
    beside = draft or Draft(0, 0)
    slot_bytes = kv_bytes + beside.token
    lane = sizing.usual_lane(most, slot_bytes, sink=sink, chunk=_CHUNK) if window is None else None
    if window is not None and sink + window <= most:
        lane = LaneGeometry(sink, window, _CHUNK)
    if lane is None:
        return None
    in_memory = _weight_bytes(config, weights, file_bytes) + beside.weights
    return Footprint(in_memory, kv_bytes, lane.num_slots * slot_bytes, lane.sink, lane.window)


def draft_of(config: ModelConfig, weights: str, file_bytes: int) -> Draft:
    """Of a draft model, as `footprint`."""
    token = config.kv_bytes_per_token(_KV_DTYPES.get(weights, weights))
    return Draft(_weight_bytes(config, weights, file_bytes), token)


def _weight_bytes(config: ModelConfig, weights: str, file_bytes: int) -> int:
    return file_bytes if weights == "gguf" else int(config.num_weights * _WEIGHT_BITS[weights]) // 8
