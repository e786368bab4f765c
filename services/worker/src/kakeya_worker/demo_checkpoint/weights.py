"""Random weights that make a lively model: greedy output wanders instead of repeating one token."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.demo_checkpoint import shape

SEED = 20240229
# The usual initialisation, 0.02, lets the residual stream copy the last token for ever (the embedding is also
# the output head); with 0.1 the layers outweigh it.
STANDARD_DEVIATION = 0.1


def make_weights() -> dict[str, NDArray[np.float32]]:
    """All tensors of the model by their name in a Qwen3 checkpoint; the same values at every call."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    return {name: _tensor(generator, size) for name, size in _tensor_sizes()}


def _tensor(generator: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float32]:
    if len(size) == 1:  # the scale of a norm
        return np.ones(size, np.float32)
    return (generator.standard_normal(size) * STANDARD_DEVIATION).astype(np.float32)


def _tensor_sizes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (shape.VOCAB_SIZE, shape.HIDDEN_SIZE)
    for index in range(shape.NUM_LAYERS):
        for name, size in _layer_sizes():
            yield f"model.layers.{index}.{name}.weight", size
    yield "model.norm.weight", (shape.HIDDEN_SIZE,)


def _layer_sizes() -> Iterator[tuple[str, tuple[int, ...]]]:
    query_size = shape.NUM_HEADS * shape.HEAD_DIM
    kv_size = shape.NUM_KV_HEADS * shape.HEAD_DIM
    yield "input_layernorm", (shape.HIDDEN_SIZE,)
    yield "self_attn.q_proj", (query_size, shape.HIDDEN_SIZE)
    yield "self_attn.k_proj", (kv_size, shape.HIDDEN_SIZE)
    yield "self_attn.v_proj", (kv_size, shape.HIDDEN_SIZE)
    yield "self_attn.o_proj", (shape.HIDDEN_SIZE, query_size)
    yield "self_attn.q_norm", (shape.HEAD_DIM,)
    yield "self_attn.k_norm", (shape.HEAD_DIM,)
    yield "post_attention_layernorm", (shape.HIDDEN_SIZE,)
    yield "mlp.gate_proj", (shape.INTERMEDIATE_SIZE, shape.HIDDEN_SIZE)
    yield "mlp.up_proj", (shape.INTERMEDIATE_SIZE, shape.HIDDEN_SIZE)
    yield "mlp.down_proj", (shape.HIDDEN_SIZE, shape.INTERMEDIATE_SIZE)
