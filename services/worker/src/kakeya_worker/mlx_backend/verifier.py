"""The MLX backend's face to the engine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.seams.geometry import Integers, LaneGeometry
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import LaneContents, Memory, ModelFacts
from kakeya_worker.mlx_backend import device, gguf_loader, quantization
from kakeya_worker.mlx_backend.batch import assemble
from kakeya_worker.mlx_backend.loader import load_decoder
from kakeya_worker.mlx_backend.mode import Mode, choose_mode
from kakeya_worker.mlx_backend.slab import Slab
from kakeya_worker.mlx_backend.stored_tensors import StoredTensors
from kakeya_worker.models import checkpoint, families, output_head
from kakeya_worker.models.gguf.gguf_tensors import GgufTensors
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.models.model_digest import model_digest


class MlxVerifier:
    """A checkpoint on MLX's default device; see `kakeya_worker.engine.seams.verifier.Verifier`.

    MLX is not thread-safe: the engine's thread alone makes arrays, and leaves none unevaluated. Any thread reads and
    writes lanes through their memory.

    Args:
        weights: "float32", "bfloat16", or, of a checkpoint that MLX quantized, its own mode, as "4bit"; "auto" is what
            the checkpoint has.
        kv_dtype: also that of activations; "auto" is that of the weights, or of a quantized checkpoint's config.
        num_threads: ignored: MLX takes no number.
        cache_directory: for digests of weight files; nothing is converted.
    """

    def __init__(
        self, model: str, *, weights: str, kv_dtype: str, num_threads: int, cache_directory: Path | None
    ) -> None:
        place = checkpoint.locate(model)
        found, plain = quantization.split(checkpoint.read_config(place))
        parsed = families.parse(plain)
        stored = GgufTensors(place) if place.is_file() else StoredTensors(place)
        self.config = output_head.settled(parsed, stored.names, stored.head_is_embedding)
        self._mode = choose_mode(weights, kv_dtype, self.config.dtype or stored.dtype, found)
        device.limit_cache()
        if isinstance(stored, GgufTensors):
            self.decoder = gguf_loader.load_decoder(stored, self.config, self._mode)
        else:
            self.decoder = load_decoder(place, self.config, self._mode)
        digest = model_digest(self.config, stored.files, cache_directory)
        self._scored: dict[int, mx.array] = {}  # by lane; each [tokens, hidden]
        facts = _facts(self.config, self._mode, digest)
        self.facts = replace(
            facts,
            tokenizer_digest=checkpoint.digest_tokenizer(place),
            tokenizer=checkpoint.find_tokenizer(place),
        )

    @staticmethod
    def chosen_weights(weights: str, kv_dtype: str, checkpoint_dtype: str) -> str:
        """See the seam."""
        return choose_mode(weights, kv_dtype, checkpoint_dtype, None).weights

    def allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        """Allocates the slab, of which MLX touches all memory at once."""
        self.slab = Slab(geometry, num_lanes, self.config, self._mode.dtype)
        device.report_memory()

    def forward(self, rows: Sequence[Row]) -> None:
        """Runs a step; see the seam."""
        lanes = [self.slab.lanes[row.lane] for row in rows]
        batch = assemble(rows, self.decoder.frequencies)
        self._scored = {}
        try:
            kept = self.decoder.final_hidden(batch, lanes)  # [kept, hidden]
            scored = {row.lane: kept[tokens] for row, tokens in zip(rows, batch.kept, strict=True) if row.is_scored}
            final_hidden = kept[mx.array([tokens.stop - 1 for tokens in batch.kept])] if scored else kept
            mx.eval(final_hidden, *scored.values())
        finally:  # no graph outlives a step, not that of one that failed half-way either
            mx.eval([lane.arrays for lane in lanes])
        self._scored = scored
        self.slab.keep_final_hidden([row.lane for row in rows], final_hidden)

    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """The logits after each lane's last token; [lanes, vocab]."""
        return np.array(self.decoder.logits(self.slab.final_hidden(lanes)))

    def scored_logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """See the seam; [tokens of all, vocab]."""
        return np.array(self.decoder.logits(mx.concatenate([self._scored[lane] for lane in lanes])))

    def shorten(self, lane: int, num_tokens: int) -> None:
        """See the seam."""
        self.slab.keep_final_hidden([lane], self._scored[lane][num_tokens - 1 : num_tokens])

    def populate_lane(self, lane: int) -> None:
        """Nothing: the slab was written to when it was allocated."""

    def copy_lane(self, source: int, target: int, num_slots: int) -> None:
        """A memcpy; see the seam."""
        slots = np.arange(num_slots)
        self.write_lane(target, slots, self.read_lane(source, slots))

    def read_lane(self, lane: int, slots: Integers, memory: Memory | None = None) -> LaneContents:
        """Copies; see the seam."""
        return self.slab.raw_lane(lane).read(slots, memory)

    def write_lane(self, lane: int, slots: Integers, contents: LaneContents) -> None:
        """Copies; see the seam. Raises ValueError."""
        self.slab.raw_lane(lane).write(slots, contents)

    def poison(self) -> None:
        """Fills the slab with NaN."""
        self.slab.fill(float("nan"))


def _facts(config: ModelConfig, mode: Mode, digest: str) -> ModelFacts:
    max_positions, reason = config.bound_on_positions
    return ModelFacts(
        backend="mlx",
        weights=mode.weights,
        kv_dtype=mode.kv_dtype,
        exact=False,
        fingerprint=mode.fingerprint(digest),
        vocab_size=config.vocab_size,
        max_positions=max_positions,
        max_positions_reason=reason,
        kv_bytes_per_token=config.kv_bytes_per_token(mode.kv_dtype),
        model_digest=digest,
    )
