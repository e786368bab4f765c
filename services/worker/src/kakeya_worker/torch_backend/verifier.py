"""The torch backend's face to the engine."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from kakeya_worker.engine.lane import LaneGeometry, Row
from kakeya_worker.engine.verifier import ModelFacts, ModelRefused
from kakeya_worker.torch_backend import checkpoint
from kakeya_worker.torch_backend.batch import assemble
from kakeya_worker.torch_backend.linear import FloatLinear
from kakeya_worker.torch_backend.qwen3 import Qwen3
from kakeya_worker.torch_backend.qwen3_config import Qwen3Config
from kakeya_worker.torch_backend.rope import Rope
from kakeya_worker.torch_backend.slab import Slab

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TorchVerifier:
    """A Qwen3 checkpoint on the CPU; see `kakeya_worker.engine.verifier.Verifier`.

    Args:
        model: local directory or hub id.
        dtype: "float32", "bfloat16", or "auto" for the checkpoint's own where it is one of them.
        num_threads: of torch's operators.
    """

    def __init__(self, model: str, *, dtype: str, num_threads: int) -> None:
        torch.set_num_threads(num_threads)
        directory = checkpoint.locate(model)
        self.config = Qwen3Config.parse(checkpoint.read_config(directory))
        name = _resolve(dtype, self.config.dtype)
        self._dtype = _DTYPES[name]
        self._model = Qwen3(self.config, checkpoint.Weights(directory, self._dtype), FloatLinear)
        self._rope = Rope(self.config.rope_theta, self.config.head_dim)
        self.facts = ModelFacts(
            backend="torch",
            dtype=name,
            vocab_size=self.config.vocab_size,
            max_positions=self.config.max_position_embeddings,
            kv_bytes_per_token=self._kv_bytes_per_token(),
        )

    def allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        """Allocates the slab; memory is touched only as lanes are used."""
        self.slab = Slab(
            geometry,
            num_lanes,
            num_layers=self.config.num_hidden_layers,
            num_kv_heads=self.config.num_key_value_heads,
            head_dim=self.config.head_dim,
            hidden_size=self.config.hidden_size,
            dtype=self._dtype,
        )

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row]) -> None:
        """Runs a step; see the seam."""
        batch = assemble(rows, self.slab.geometry, self._rope)
        self.slab.final_hidden[batch.row_lanes] = self._model.forward(batch, self.slab)

    @torch.inference_mode()
    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """The logits after each lane's last token; [lanes, vocab]."""
        logits: NDArray[np.float32] = self._model.logits(self.slab.final_hidden[list(lanes)]).float().numpy()
        return logits

    def _kv_bytes_per_token(self) -> int:
        slots_per_token = self.config.num_hidden_layers * self.config.num_key_value_heads * self.config.head_dim
        return slots_per_token * self._dtype.itemsize * 2  # K and V


def _resolve(dtype: str, checkpoint_dtype: str) -> str:
    """The name of the dtype to run in. Raises ModelRefused."""
    if dtype == "auto":
        return checkpoint_dtype if checkpoint_dtype in _DTYPES else "float32"
    if dtype not in _DTYPES:
        raise ModelRefused(f"dtype {dtype!r} cannot run; what can: {', '.join(_DTYPES)}")
    return dtype
