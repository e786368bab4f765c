"""The variants whose bits are compared: all of them, and one that is hard to quantize."""

from dataclasses import replace

import numpy as np

from kakeya_worker.conformance.tools.checkpoint_files import Tensors
from kakeya_worker.conformance.tools.checkpoints import VARIANTS, Variant
from kakeya_worker.conformance.tools.transcript import MAX_POSITIONS


class OutlierVariant(Variant):
    """What real models have and small random ones do not.

    Columns far larger than the rest, rows and columns of nothing, and more rows than are quantized at once.
    """

    def tensors(self, dtype: str = "float32") -> Tensors:
        tensors = super().tensors(dtype)
        for name, tensor in tensors.items():
            if name.endswith("norm.weight"):
                tensor[3] /= 50  # so that no channel outshouts the others
            elif tensor.ndim == 2 and "embed" not in name:
                tensor[:, 3] *= 50
                tensor[:, 7] *= np.float32(2.0**-40)
                tensor[:, 11] = 0
                tensor[2] = 0
                tensor[5] *= np.float32(2.0**-120)  # too small for a reciprocal
        tensors["model.layers.1.mlp.up_proj.weight"][:] = 0  # down_proj then gets nothing but zeros
        return tensors


def _variants() -> tuple[Variant, ...]:
    usual = [
        replace(variant, config={**variant.config, "max_position_embeddings": MAX_POSITIONS}) for variant in VARIANTS
    ]
    qwen2 = next(variant for variant in usual if variant.family == "qwen2")
    return (*usual, OutlierVariant("outliers", {**qwen2.config, "vocab_size": 4200}))


BIT_VARIANTS = _variants()
