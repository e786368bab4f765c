"""The exact numerics, as the decoder uses them."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.models.output_head import EMBEDDING, HEAD
from kakeya_worker.torch_backend.exact import attention
from kakeya_worker.torch_backend.exact.arithmetic import divide, exp, fold, round_to, sqrt
from kakeya_worker.torch_backend.exact.attention import ExactRowView
from kakeya_worker.torch_backend.exact.integer_product import IntegerProduct
from kakeya_worker.torch_backend.exact.linear import Int8Embedding, Int8Linear
from kakeya_worker.torch_backend.exact.packing import PackedMatrix, unpack
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix, quantize_matrix, quantize_table
from kakeya_worker.torch_backend.exact.weight_cache import Conversion, WeightCache
from kakeya_worker.torch_backend.layer_tensors import layer_tensors
from kakeya_worker.torch_backend.numerics import LinearSpec, Norm, RowQueries
from kakeya_worker.torch_backend.weights import Weights


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

    def convert(self, config: ModelConfig) -> None:
        """Maps all matrices from the cache's file; before that, where there is none yet, converts them into it."""
        self._cache.fill(self._conversions(config))

    def norm(self, name: str, size: int, eps: float) -> Norm:
        weight = self.norm_weight(name, size)
        return lambda x: rms_norm(x, weight, eps)

    def linear(self, spec: LinearSpec) -> Int8Linear:
        return Int8Linear(unpack(self.packed(spec)), self.bias(spec), self._product)

    def embedding(self, name: str, vocab_size: int, hidden_size: int) -> Int8Embedding:
        return Int8Embedding(unpack(self.packed_table(name, vocab_size, hidden_size)), self._product)

    def norm_weight(self, name: str, size: int) -> Tensor:
        """Float32 [size]. Raises ModelRefused where it is not finite."""
        return self._vector(f"{name}.weight", size)

    def packed(self, spec: LinearSpec) -> PackedMatrix:
        """A linear layer's weights, all parts below one another."""
        return self._cache.matrix(self._linear(spec))

    def packed_table(self, name: str, vocab_size: int, hidden_size: int) -> PackedMatrix:
        """A table of embeddings."""
        return self._cache.matrix(self._table(name, vocab_size, hidden_size))

    def bias(self, spec: LinearSpec) -> Tensor | None:
        """Float32 [out_features], if the layer has one. Raises ModelRefused where it is not finite."""
        if not spec.has_bias:
            return None
        sizes = zip(spec.tensor_names, spec.parts, strict=True)
        return torch.cat([self._vector(f"{name}.bias", size) for name, (_, size) in sizes])

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        return swiglu(gate, up)

    def loaded(self) -> None:
        """Returns what conversion has left of memory."""
        self._cache.finish()

    def round_kv(self, x: Tensor) -> Tensor:
        return round_to(x, self.kv_dtype)

    def view(self, row: Row) -> ExactRowView:
        return attention.view(row)

    def attend(self, queries: RowQueries, keys: Tensor, values: Tensor, view: ExactRowView) -> Tensor:
        return attention.attend(queries, keys, values, view)

    def _vector(self, name: str, size: int) -> Tensor:
        """A copy, so that nothing points into the checkpoint's file; float32 [size]."""
        vector = self._weights(name, (size,)).to(torch.float32, copy=True)
        if not bool(vector.isfinite().all()):
            raise ModelRefused(f"{name} holds infinities or what is not a number")
        return vector

    def _conversions(self, config: ModelConfig) -> Iterator[Conversion]:
        for table in (EMBEDDING,) if config.tied_head else (EMBEDDING, HEAD):
            yield self._table(table, config.vocab_size, config.hidden_size)
        for number in range(config.num_layers):
            names = layer_tensors(config, number)
            yield from map(self._linear, (names.qkv, names.out, names.gate_up, names.down))

    def _linear(self, spec: LinearSpec) -> Conversion:
        names = [f"{name}.weight" for name in spec.tensor_names]
        sizes = [(size, spec.in_features) for _, size in spec.parts]

        def quantize() -> QuantizedMatrix:
            return quantize_matrix([self._weights(*part) for part in zip(names, sizes, strict=True)])

        rows = sum(size for size, _ in sizes)
        return _conversion("+".join(names), (rows, spec.in_features), quantize)

    def _table(self, name: str, vocab_size: int, hidden_size: int) -> Conversion:
        weight, shape = f"{name}.weight", (vocab_size, hidden_size)
        return _conversion(weight, shape, lambda: quantize_table(self._weights(weight, shape)))


def _conversion(name: str, shape: tuple[int, int], quantize: Callable[[], QuantizedMatrix]) -> Conversion:
    """Refuses what is not finite."""

    def checked() -> QuantizedMatrix:
        matrix = quantize()
        if not bool(matrix.scales.isfinite().all()):
            raise ModelRefused(f"{name} holds infinities or what is not a number")
        return matrix

    return Conversion(name, shape, checked)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm over the last dimension: squares folded by halves; float32 [..., size]."""
    sums = fold(x * x, dim=-1).unsqueeze(-1)
    mean = torch.div(sums, torch.full_like(sums, x.shape[-1]))
    return x * divide(1.0, sqrt(mean + eps)) * weight


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up without overflow on either side; float32 of one shape."""
    e = exp(-gate.abs())
    numerator = torch.where(gate >= 0, torch.ones_like(e), e)
    return gate * torch.div(numerator, e + 1.0) * up
