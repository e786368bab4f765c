"""The kernel's C interface: structs as in variant.h and decoder.h, and the functions of kernel.cpp."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from typing import ClassVar

from torch import Tensor

from kakeya_worker.models.gguf.block_integers import BLOCK_TYPES
from kakeya_worker.torch_backend.exact.attention.key_blocks import BLOCK
from kakeya_worker.torch_backend.exact.gguf_blocks.packing import PackedBlocks
from kakeya_worker.torch_backend.exact.matrices import Packed
from kakeya_worker.torch_backend.exact.packing import PANEL_ROWS
from kakeya_worker.torch_backend.exact.quantization import GROUP
from kakeya_worker.torch_backend.numerics import BFLOAT16, FLOAT32, INT8, KvType

FORMATS = {name: number for number, name in enumerate(BLOCK_TYPES, 1)}
"""`enum Format` of variant.h; 0 are groups of int8."""

MAX_HEAD_DIM = 256
FLOAT_TILE_QUERIES, INTEGER_TILE_QUERIES = 4, 64
"""How many are attended to at a time, over floats and over int8."""


class Matrix(Structure):
    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("values", "scales", "stretch", "bias")),
        ("out", c_int64),
        ("in", c_int64),
        ("format", c_int64),
    ]


class Linear(Structure):
    _fields_: ClassVar = [("parts", POINTER(Matrix)), ("num_parts", c_int64)]


class HeadShape(Structure):
    _fields_: ClassVar = [
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("head_dim", c_int64),
        ("eps", c_float),
        ("scale", c_float),
        ("kv_type", c_int32),
        ("padded_head_dim", c_int64),
    ]


class Layer(Structure):
    _fields_: ClassVar = [
        *((name, Linear) for name in ("qkv", "out", "gate_up", "down")),
        *((name, c_void_p) for name in ("attention_norm", "mlp_norm", "q_norm", "k_norm")),
        ("rotates", c_int64),
    ]


class Model(Structure):
    _fields_: ClassVar = [
        ("embedding", Matrix),
        ("head", Linear),
        ("final_norm", c_void_p),
        ("layers", POINTER(Layer)),
        ("frequencies", c_void_p),
        *((name, c_int64) for name in ("num_layers", "hidden_size", "intermediate_size", "vocab_size")),
        ("heads", HeadShape),
    ]


class Slab(Structure):
    _fields_: ClassVar = [
        ("keys", POINTER(c_void_p)),
        ("values", POINTER(c_void_p)),
        ("final_hidden", c_void_p),
        ("num_slots", c_int64),
        ("lane_bytes", c_int64),
    ]


class StepRow(Structure):
    _fields_: ClassVar = [
        *((name, c_int64) for name in ("lane", "first_token", "num_tokens", "num_blocks", "num_sink_blocks")),
        *((name, c_int64) for name in ("first_kept", "num_kept")),
        ("slots", c_void_p),
        ("visible", c_void_p),
    ]


class Step(Structure):
    _fields_: ClassVar = [
        *((name, c_int64) for name in ("num_tokens", "num_rows", "num_kept")),
        *((name, c_void_p) for name in ("token_ids", "slots", "key_positions", "recent_positions", "sink_positions")),
        ("rows", POINTER(StepRow)),
        ("kept_hidden", c_void_p),
    ]


class Heads(Structure):
    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("qkv", "q_norm", "k_norm", "key_angle", "recent_angle", "sink_angle")),
        *((name, c_void_p) for name in ("to_recent", "to_sinks", "keys", "values")),
        ("head_stride", c_int64),
    ]


class Attention(Structure):
    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("to_recent", "to_sinks", "keys", "values", "slots", "visible")),
        *((name, c_int32) for name in ("num_blocks", "num_sink_blocks", "num_queries")),
        ("mixed", c_void_p),
        ("scores", c_void_p),
        ("next", c_void_p),
    ]


_KV_TYPES = (BFLOAT16, FLOAT32, INT8)  # as `enum KvType` of variant.h has them
_STRUCTS = (Matrix, Linear, HeadShape, Layer, Model, Slab, StepRow, Step, Heads, Attention)
_LAYOUT = (
    *map(ctypes.sizeof, _STRUCTS),
    PANEL_ROWS,
    GROUP,
    BLOCK,
    MAX_HEAD_DIM,
    FLOAT_TILE_QUERIES,
    INTEGER_TILE_QUERIES,
)
_FUNCTIONS = {
    "kakeya_layout": ([c_int], c_int64),
    "kakeya_op_angle": ([c_void_p, c_int64, c_int64, c_void_p], None),
    "kakeya_variants": ([], c_char_p),
    "kakeya_variant": ([c_char_p], c_void_p),
    "kakeya_decoder_new": ([POINTER(Model), c_void_p, c_int], c_void_p),
    "kakeya_decoder_free": ([c_void_p], None),
    "kakeya_decoder_bind": ([c_void_p, POINTER(Slab)], None),
    "kakeya_decoder_forward": ([c_void_p, POINTER(Step)], c_int),
    "kakeya_decoder_logits": ([c_void_p, c_void_p, c_void_p, c_int64, c_void_p], c_int),
    "kakeya_draw": ([c_void_p, c_void_p, c_void_p, c_int64, c_uint64, c_uint64], c_int64),
    "kakeya_op_norm": ([c_void_p, c_void_p, c_void_p, c_float, c_int64, c_int64, c_void_p], None),
    "kakeya_op_linear": ([c_void_p, POINTER(Matrix), c_void_p, c_int64, c_int, c_void_p], None),
    "kakeya_op_embed": ([c_void_p, POINTER(Matrix), c_void_p, c_int64, c_void_p], None),
    "kakeya_op_swiglu": ([c_void_p, c_void_p, c_int64, c_int64, c_void_p], None),
    "kakeya_op_exp": ([c_void_p, c_void_p, c_int64], None),
    "kakeya_op_heads": ([c_void_p, POINTER(HeadShape), POINTER(Heads)], None),
    "kakeya_op_attend": ([c_void_p, POINTER(HeadShape), POINTER(Attention)], None),
}


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library, with the types of its functions. Calls release the GIL.

    Raises:
        OSError: its structs or constants are not those of this file.
    """
    for name, (argument_types, result_type) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = argument_types, result_type
    if any(library.kakeya_layout(index) != number for index, number in enumerate(_LAYOUT)):
        raise OSError("the library's structs or constants are not those of interface.py")
    return library


def head_shape(
    num_heads: int, num_kv_heads: int, head_dim: int, eps: float, scale: float, kv_type: KvType
) -> HeadShape:
    """Heads are padded to a power of two, at least a vector of 16."""
    padded = max(16, 1 << (head_dim - 1).bit_length())
    return HeadShape(num_heads, num_kv_heads, head_dim, eps, scale, _KV_TYPES.index(kv_type), padded)


def matrix(packed: Packed, stretch: Tensor, bias: Tensor | None) -> Matrix:
    """Of a packed matrix; its tensors, and these, must outlive what is made of it.

    Args:
        stretch: what activations are multiplied with; float32 [in_features].
        bias: float32 [out_features].
    """
    if packed.values.data_ptr() % 64:
        raise ValueError("packed weights begin at a multiple of 64 bytes")
    scales, number = (None, FORMATS[packed.kind.name]) if isinstance(packed, PackedBlocks) else (packed.scales, 0)
    sizes = packed.out_features, packed.in_features
    return Matrix(*map(pointer, (packed.values, scales, stretch, bias)), *sizes, number)


def linear(matrices: Sequence[Matrix]) -> Linear:
    """A layer of matrices over the same inputs; it holds them."""
    return Linear((Matrix * len(matrices))(*matrices), len(matrices))


def pointer(tensor: Tensor | None) -> int | None:
    """Of a tensor's first element; it must be contiguous."""
    if tensor is None:
        return None
    if not tensor.is_contiguous():
        raise ValueError("the kernel reads contiguous tensors")
    return tensor.data_ptr()
