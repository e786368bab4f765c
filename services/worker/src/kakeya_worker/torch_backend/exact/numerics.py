"""The exact numerics, as the decoder uses them."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.models.output_head import EMBEDDING, HEAD
from kakeya_worker.torch_backend.exact.arithmetic import divide, exp, fold, sqrt
from kakeya_worker.torch_backend.exact.attention import row_view
from kakeya_worker.torch_backend.exact.attention.exact_kv import exact_kv
from kakeya_worker.torch_backend.exact.attention.row_view import ExactRowView
from kakeya_worker.torch_backend.exact.integer_product import IntegerProduct
from kakeya_worker.torch_backend.exact.matrices import ExactEmbedding, Matrix, Packed, eager_linear
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix, quantize_matrix, quantize_table
from kakeya_worker.torch_backend.exact.weight_cache import Conversion, WeightCache
from kakeya_worker.torch_backend.layer_tensors import layer_tensors
from kakeya_worker.torch_backend.numerics import KvType, Linear, LinearSpec, Norm, RowQueries
from kakeya_worker.torch_backend.weights import Weights


class ExactNumerics:
    """Weights in whole numbers, float32 activations, every operation of docs/numerics.md.

    Args:
        weights: of the checkpoint, quantized one layer at a time while they are read.
        kv_type: of K and V.
        product: of int8 matrices.
        cache: holds the quantized matrices between runs.
        keeps_blocks: whether matrices of GGUF's blocks are computed with as they are, and not made int8.
    """

    hidden_dtype = torch.float32

    def __init__(
        self,
        weights: Weights,
        kv_type: KvType,
        product: IntegerProduct,
        cache: WeightCache,
        *,
        keeps_blocks: bool = False,
    ) -> None:
        self._weights = weights
        self._keeps_blocks = keeps_blocks
        self._product = product
        self._cache = cache
        self.kv_type = kv_type
        self._kv = exact_kv(kv_type)

    def convert(self, config: ModelConfig) -> None:
        """Maps all matrices from the cache's file; before that, where there is none yet, converts them into it."""
        self._cache.fill(self._conversions(config))

    def norm(self, name: str, size: int, eps: float) -> Norm:
        weight = self.norm_weight(name, size)
        return lambda x: rms_norm(x, weight, eps)

    def linear(self, spec: LinearSpec) -> Linear:
        matrices, bias = self.packed(spec), self.bias(spec)
        biases = [None] * len(matrices) if bias is None else bias.split([matrix.out_features for matrix in matrices])
        parts = [eager_linear(matrix, of_part, self._product) for matrix, of_part in zip(matrices, biases, strict=True)]
        return parts[0] if len(parts) == 1 else lambda x: torch.cat([part(x) for part in parts], dim=-1)

    def embedding(self, name: str, vocab_size: int, hidden_size: int) -> ExactEmbedding:
        return ExactEmbedding(eager_linear(self.packed_table(name, vocab_size, hidden_size), None, self._product))

    def norm_weight(self, name: str, size: int) -> Tensor:
        """Float32 [size]. Raises ModelRefused where it is not finite."""
        return self._vector(f"{name}.weight", size)

    def packed(self, spec: LinearSpec) -> list[Packed]:
        """A linear layer's weights, all parts below one another; in one matrix where none is of GGUF's blocks."""
        return [self._cache.matrix(conversion) for conversion in self._linear(spec)]

    def packed_table(self, name: str, vocab_size: int, hidden_size: int) -> Packed:
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

    def stored_keys(self, x: Tensor) -> Tensor:
        return self._kv.stored_keys(x)

    def stored_values(self, x: Tensor) -> Tensor:
        return self._kv.stored_values(x)

    def view(self, row: Row) -> ExactRowView:
        return row_view.view(row)

    def attend(self, queries: RowQueries, keys: Tensor, values: Tensor, view: ExactRowView) -> Tensor:
        return self._kv.attend(queries, keys, values, view)

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
            for spec in (names.qkv, names.out, names.gate_up, names.down):
                yield from self._linear(spec)

    def _linear(self, spec: LinearSpec) -> list[Conversion]:
        names = [f"{name}.weight" for name in spec.tensor_names]
        sizes = [(size, spec.in_features) for _, size in spec.parts]
        if self._keeps_blocks and any(self._weights.is_blocks(name) for name in names):
            return [self._matrix_as_it_is(*part) for part in zip(names, sizes, strict=True)]

        def quantize() -> QuantizedMatrix:
            return quantize_matrix([self._weights(*part) for part in zip(names, sizes, strict=True)])

        rows = sum(size for size, _ in sizes)
        return [_conversion("+".join(names), (rows, spec.in_features), quantize)]

    def _table(self, name: str, vocab_size: int, hidden_size: int) -> Conversion:
        weight, shape = f"{name}.weight", (vocab_size, hidden_size)
        if self._keeps_blocks:
            return self._matrix_as_it_is(weight, shape)
        return _conversion(weight, shape, lambda: quantize_table(self._weights(weight, shape)))

    def _matrix_as_it_is(self, name: str, shape: tuple[int, int]) -> Conversion:
        """Blocks, or int8 without exponents, which all parts of a layer would have to share."""

        def read() -> Matrix:
            return self._weights.blocks(name, shape) or quantize_table(self._weights(name, shape))

        return _conversion(name, shape, read)


def _conversion(name: str, shape: tuple[int, int], quantize: Callable[[], Matrix]) -> Conversion:
    """Refuses what is not finite."""

    def checked() -> Matrix:
        matrix = quantize()
        if not matrix.is_finite:
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
