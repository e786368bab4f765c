"""The exact numerics, as the decoder uses them."""

import torch
from torch import Tensor

from kakeya_worker.engine.row import Row
from kakeya_worker.engine.verifier import ModelRefused
from kakeya_worker.torch_backend.checkpoint import Weights
from kakeya_worker.torch_backend.exact import attention
from kakeya_worker.torch_backend.exact.arithmetic import divide, exp, fold, round_to, sqrt
from kakeya_worker.torch_backend.exact.attention import ExactRowView
from kakeya_worker.torch_backend.exact.integer_product import MAX_DEPTH, MIN_DEPTH, IntegerProduct
from kakeya_worker.torch_backend.exact.linear import Int8Embedding, Int8Linear
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix, quantize_matrix
from kakeya_worker.torch_backend.exact.weight_cache import WeightCache
from kakeya_worker.torch_backend.numerics import LinearSpec, Norm, RowQueries


class ExactNumerics:
    """int8 weights, float32 activations, every operation of docs/numerics.md.

    Args:
        weights: of the checkpoint, quantized one layer at a time while they are read.
        kv_dtype: of K and V.
        product: of int8 matrices.
        cache: holds the quantized matrices between runs.
    """

    hidden_dtype = torch.float32

    def __init__(self, weights: Weights, kv_dtype: torch.dtype, product: IntegerProduct, cache: WeightCache) -> None:
        self._weights = weights
        self._product = product
        self._cache = cache
        self.kv_dtype = kv_dtype

    def norm(self, name: str, size: int, eps: float) -> Norm:
        weight = self._weights(f"{name}.weight", (size,)).float()
        return lambda x: rms_norm(x, weight, eps)

    def linear(self, spec: LinearSpec) -> Int8Linear:
        sizes = {name: size for name, (_, size) in zip(spec.tensor_names, spec.parts, strict=True)}
        matrix = self._matrix({f"{name}.weight": size for name, size in sizes.items()}, spec.in_features)
        bias = None
        if spec.has_bias:
            bias = torch.cat([self._weights(f"{name}.bias", (size,)).float() for name, size in sizes.items()])
        return Int8Linear(matrix, bias, self._product)

    def embedding(self, name: str, vocab_size: int, hidden_size: int) -> Int8Embedding:
        return Int8Embedding(self._matrix({f"{name}.weight": vocab_size}, hidden_size), self._product)

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        e = exp(-gate.abs())
        numerator = torch.where(gate >= 0, torch.ones_like(e), e)
        return gate * torch.div(numerator, e + 1.0) * up

    def loaded(self) -> None:
        """Keeps the matrices for the next start."""
        self._cache.write()

    def round_kv(self, x: Tensor) -> Tensor:
        return round_to(x, self.kv_dtype)

    def view(self, row: Row) -> ExactRowView:
        return attention.view(row)

    def attend(self, queries: RowQueries, keys: Tensor, values: Tensor, view: ExactRowView) -> Tensor:
        return attention.attend(queries, keys, values, view)

    def _matrix(self, sizes: dict[str, int], in_features: int) -> QuantizedMatrix:
        """Tensors of these numbers of rows below one another, from the cache or else from the checkpoint."""
        if not MIN_DEPTH <= in_features <= MAX_DEPTH:
            raise ModelRefused(f"int8 needs {MIN_DEPTH} to {MAX_DEPTH} input features, not {in_features}")
        key = "+".join(sizes)
        kept = self._cache.get(key, (sum(sizes.values()), in_features))
        if kept is not None:
            return kept
        matrix = quantize_matrix([self._weights(name, (size, in_features)) for name, size in sizes.items()])
        if not bool(matrix.scales.isfinite().all()):
            raise ModelRefused(f"{key} holds infinities or what is not a number")
        return self._cache.put(key, matrix)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm over the last dimension: squares folded by halves; float32 [..., size]."""
    sums = fold(x * x, dim=-1).unsqueeze(-1)
    mean = torch.div(sums, torch.full_like(sums, x.shape[-1]))
    return x * divide(1.0, sqrt(mean + eps)) * weight
