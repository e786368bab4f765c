"""The torch backend's face to the engine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from kakeya_worker.engine.sampling.gumbel import Draw, draw
from kakeya_worker.engine.seams.geometry import Integers, LaneGeometry
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import LaneContents, Memory, ModelFacts
from kakeya_worker.models import checkpoint, families, output_head
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.models.model_digest import model_digest
from kakeya_worker.torch_backend.exact.kernel.kernel_draw import KernelDraw
from kakeya_worker.torch_backend.gguf_weights import GgufWeights
from kakeya_worker.torch_backend.mode import EXACT, GGUF, Mode, choose_mode, choose_weights
from kakeya_worker.torch_backend.safetensors_weights import SafetensorsWeights
from kakeya_worker.torch_backend.slab import Slab
from kakeya_worker.torch_backend.weights import Weights


class TorchVerifier:
    """A checkpoint on the CPU; see `kakeya_worker.engine.seams.verifier.Verifier`.

    Args:
        weights: "gguf" (blocks of a GGUF file as they are) and "int8" are exact; "float32" and "bfloat16" are not;
            "auto" is gguf for a file with such blocks where the kernel has a variant with vectors, else int8 where
            integer products are fast, else the checkpoint's own type.
        kv_dtype: "auto" is bfloat16 in exact mode, else the type of the weights.
    """

    def __init__(
        self, model: str, *, weights: str, kv_dtype: str, num_threads: int, cache_directory: Path | None
    ) -> None:
        torch.set_num_threads(num_threads)
        place = checkpoint.locate(model)
        parsed = families.parse(checkpoint.read_config(place))
        tensors: Weights = GgufWeights(place) if place.is_file() else SafetensorsWeights(place)
        self.config = output_head.settled(parsed, tensors.names, tensors.head_is_embedding)
        mode = choose_mode(weights, kv_dtype, GGUF if tensors.has_blocks else self.config.dtype or tensors.dtype)
        digest = model_digest(self.config, tensors.files, cache_directory)
        self._numerics, fingerprint = mode.prepare(tensors, digest, cache_directory)
        self._decoder = mode.decoder(self.config, self._numerics, num_threads)
        self.draw: Draw = draw if mode.kernel is None else KernelDraw(mode.kernel)
        self._numerics.loaded()
        facts = _facts(self.config, mode, fingerprint)
        self.facts = replace(
            facts,
            tokenizer_digest=checkpoint.digest_tokenizer(place),
            tokenizer=checkpoint.find_tokenizer(place),
            model_digest=digest,
        )

    @staticmethod
    def chosen_weights(weights: str, kv_dtype: str, checkpoint_dtype: str) -> str:
        """See the seam."""
        return choose_weights(weights, kv_dtype, checkpoint_dtype)

    def allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        """Allocates the slab; memory is touched only as lanes are used."""
        self.slab = Slab(
            geometry,
            num_lanes,
            num_layers=self.config.num_layers,
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            hidden_size=self.config.hidden_size,
            kv_type=self._numerics.kv_type,
            hidden_dtype=self._numerics.hidden_dtype,
        )
        self._decoder.bind(self.slab)

    def forward(self, rows: Sequence[Row]) -> None:
        """Runs a step; see the seam."""
        self._decoder.forward(rows)

    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """The logits after each lane's last token; [lanes, vocab]."""
        return self._decoder.logits(lanes)

    def scored_logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """See the seam; [tokens of all, vocab]."""
        return self._decoder.scored_logits(lanes)

    def shorten(self, lane: int, num_tokens: int) -> None:
        """See the seam."""
        self._decoder.shorten(lane, num_tokens)

    def populate_lane(self, lane: int) -> None:
        """See the seam."""
        self.slab.populate_lane(lane)

    @torch.inference_mode()
    def copy_lane(self, source: int, target: int, num_slots: int) -> None:
        """A memcpy; see the seam."""
        self.slab.copy_lane(source, target, num_slots)

    @torch.inference_mode()
    def read_lane(self, lane: int, slots: Integers, memory: Memory | None = None) -> LaneContents:
        """Copies; see the seam."""
        return self.slab.raw_lane(lane).read(slots, memory)

    @torch.inference_mode()
    def write_lane(self, lane: int, slots: Integers, contents: LaneContents) -> None:
        """Copies; see the seam. Raises ValueError."""
        self.slab.raw_lane(lane).write(slots, contents)

    def poison(self) -> None:
        """Fills the slab with NaN; see the seam."""
        self.slab.poison()


def _facts(config: ModelConfig, mode: Mode, fingerprint: str) -> ModelFacts:
    max_positions, reason = config.bound_on_positions
    return ModelFacts(
        backend="torch",
        weights=mode.weights,
        kv_dtype=mode.kv_type.name,
        exact=mode.weights in EXACT,
        fingerprint=fingerprint,
        vocab_size=config.vocab_size,
        max_positions=max_positions,
        max_positions_reason=reason,
        kv_bytes_per_token=config.kv_bytes_per_token(mode.kv_type.name),
    )
