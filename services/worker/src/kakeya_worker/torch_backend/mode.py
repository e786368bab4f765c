"""Modes of the torch backend: which weights, which KV, and therefore which numerics and fingerprint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import torch

from kakeya_worker.engine.seams.fingerprint import fingerprint
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.float_types import FLOAT_TYPES, float_type
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.torch_backend.decoder import Decoder
from kakeya_worker.torch_backend.exact import NUMERICS_VERSION, integer_product
from kakeya_worker.torch_backend.exact.integer_product import IntegerProduct
from kakeya_worker.torch_backend.exact.kernel import library
from kakeya_worker.torch_backend.exact.kernel.interface import MAX_HEAD_DIM
from kakeya_worker.torch_backend.exact.kernel.library import Kernel
from kakeya_worker.torch_backend.exact.kernel.probe import check_kernel
from kakeya_worker.torch_backend.exact.kernel_decoder import KernelDecoder
from kakeya_worker.torch_backend.exact.numerics import ExactNumerics
from kakeya_worker.torch_backend.exact.probe import problem_with_floats
from kakeya_worker.torch_backend.exact.weight_cache import GGUF_BITS, INT8_BITS, WeightCache
from kakeya_worker.torch_backend.float_numerics import FloatNumerics
from kakeya_worker.torch_backend.numerics import KV_TYPES, KvType, Numerics
from kakeya_worker.torch_backend.weights import Weights

_log = structlog.get_logger()
GGUF, INT8 = "gguf", "int8"
EXACT = (GGUF, INT8)
"""Weights of exact mode: as a GGUF file has them, or made of any checkpoint."""


@dataclass(frozen=True)
class Mode:
    """What was chosen.

    Attributes:
        weights: gguf, int8, float32 or bfloat16.
        product: of int8 matrices in the eager form; None in float modes.
        kernel: that computes instead of the eager form, if any.
    """

    weights: str
    kv_type: KvType
    product: IntegerProduct | None = None
    kernel: Kernel | None = None

    def prepare(self, tensors: Weights, digest: str, cache_directory: Path | None) -> tuple[Numerics[Any], str]:
        """The numerics to load a model with, and the fingerprint of what it will compute."""
        parts: dict[str, str | int] = {
            "model": digest,
            "weights": self.weights,
            "kv_dtype": f"torch.{self.kv_type.name}",
        }
        if self.product is None:
            parts |= {
                "backend": "torch",
                "version": torch.__version__,
                "instructions": torch.backends.cpu.get_cpu_capability(),
                "threads": torch.get_num_threads(),
            }
            return FloatNumerics(tensors, self.kv_type), fingerprint(parts)
        parts |= {"numerics": NUMERICS_VERSION}
        # The matrices do not depend on the type of the KV, so that both share a file.
        name = fingerprint({"model": digest, "weights": self.weights, "numerics": NUMERICS_VERSION})
        keeps_blocks = self.weights == GGUF
        path = cache_directory / self.weights / name if cache_directory else None
        cache = WeightCache(path, tensors.num_weights(), GGUF_BITS if keeps_blocks else INT8_BITS)
        numerics = ExactNumerics(tensors, self.kv_type, self.product, cache, keeps_blocks=keeps_blocks)
        return numerics, fingerprint(parts)

    def decoder(self, config: ModelConfig, numerics: Numerics[Any], num_threads: int) -> Decoder | KernelDecoder:
        """Loads the model. Raises ModelRefused."""
        if not isinstance(numerics, ExactNumerics):
            return Decoder(config, numerics)
        numerics.convert(config)
        if self.kernel is None:
            return Decoder(config, numerics)
        if config.head_dim > MAX_HEAD_DIM:
            _log.warning("the kernel has no such heads; the eager form computes", head_dim=config.head_dim)
            return Decoder(config, numerics)
        return KernelDecoder(config, numerics, self.kernel, num_threads)


def choose_mode(weights: str, kv_dtype: str, checkpoint_dtype: str) -> Mode:
    """Resolves "auto". Raises ModelRefused.

    Args:
        checkpoint_dtype: float32 or bfloat16, among others; gguf where some matrices are GGUF's blocks.
    """
    chosen, kernel, product = _chosen(weights, kv_dtype, checkpoint_dtype)
    if chosen in EXACT:
        return _exact_mode(chosen, "bfloat16" if kv_dtype == "auto" else kv_dtype, kernel, product)
    return Mode(chosen, KV_TYPES[chosen])


def choose_weights(weights: str, kv_dtype: str, checkpoint_dtype: str) -> str:
    """Those of the mode that would be chosen; nothing is tried out for it. Raises ModelRefused."""
    return _chosen(weights, kv_dtype, checkpoint_dtype)[0]


def _chosen(weights: str, kv_dtype: str, checkpoint_dtype: str) -> tuple[str, Kernel | None, IntegerProduct | None]:
    """The weights, and what would multiply them exactly. Raises ModelRefused."""
    if weights not in ("auto", *EXACT, *FLOAT_TYPES):
        raise ModelRefused(
            f"weights {weights!r} cannot run; what can: {', '.join((*EXACT, *FLOAT_TYPES))}. Fewer bits come from a "
            "GGUF file: llama.cpp's llama-quantize makes one of a checkpoint"
        )
    if weights == GGUF != checkpoint_dtype:
        raise ModelRefused(f"weights {GGUF!r} cannot run: the checkpoint has none of GGUF's blocks; int8 makes its own")
    if kv_dtype not in ("auto", *KV_TYPES):
        raise ModelRefused(f"KV of type {kv_dtype!r} cannot run; what can: {', '.join(KV_TYPES)}")
    kernel = library.chosen_kernel() if weights in ("auto", *EXACT) else None
    product = _integer_product() if weights in ("auto", *EXACT) else None
    has_vectors = kernel is not None and kernel.name != "portable"
    is_fast = has_vectors or product is integer_product.native
    problem = problem_with_floats()
    if weights == "auto":
        # The eager form of blocks is slow whatever its products are.
        exact = GGUF if checkpoint_dtype == GGUF and has_vectors else INT8
        weights = exact if is_fast and problem is None else float_type(kv_dtype, checkpoint_dtype)
        _log.info("weights chosen", weights=weights, fast_integer_products=is_fast, problem_with_floats=problem)
    if weights in EXACT:
        if problem is not None:
            raise ModelRefused(f"exact mode cannot run: {problem}")
    elif kv_dtype not in ("auto", weights):
        raise ModelRefused(f"weights of {weights} keep their KV in {weights}, not {kv_dtype}")
    return weights, kernel, product


def _integer_product() -> IntegerProduct:
    """The eager form's: needed without a kernel, and for what that cannot do."""
    if integer_product.native_is_fast() and integer_product.is_exact(integer_product.native):
        return integer_product.native
    return integer_product.by_floats


def _exact_mode(weights: str, kv_dtype: str, kernel: Kernel | None, product: IntegerProduct | None) -> Mode:
    """Raises ModelRefused."""
    if kernel is not None:
        check_kernel(kernel, with_blocks=weights == GGUF)
        _log.info("kernel chosen", kernel=kernel.name)
    elif product is not integer_product.native:
        _log.warning(
            "torch has no fast and exact int8 products on this CPU; exact mode runs on float32 ones and is slow"
        )
    return Mode(weights, KV_TYPES[kv_dtype], product, kernel)
