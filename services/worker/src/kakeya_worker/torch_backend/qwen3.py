"""Qwen3's forward pass over a slab (architecture: arXiv 2505.09388; pre-norm, GQA, q/k-norm, SwiGLU)."""

import torch
from torch import Tensor

from kakeya_worker.torch_backend.attention import attend
from kakeya_worker.torch_backend.batch import Batch
from kakeya_worker.torch_backend.checkpoint import Weights
from kakeya_worker.torch_backend.linear import Linear, MakeLinear
from kakeya_worker.torch_backend.qwen3_config import Qwen3Config
from kakeya_worker.torch_backend.slab import Slab


class RmsNorm:
    """Root mean square norm (arXiv 1910.07467) over the last dimension, in float32 and rounded once."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._eps)
        return (wide * scale * self._weight).to(x.dtype)


class Attention:
    """Writes the tokens' K and V into their lanes, then attends row by row."""

    def __init__(self, config: Qwen3Config, weights: Weights, prefix: str, make_linear: MakeLinear) -> None:
        self._num_heads = config.num_attention_heads
        self._num_kv_heads = config.num_key_value_heads
        self._head_dim = config.head_dim
        sizes = {
            "q_proj": config.num_attention_heads * config.head_dim,
            "k_proj": config.num_key_value_heads * config.head_dim,
            "v_proj": config.num_key_value_heads * config.head_dim,
        }
        self._qkv = _fused(weights, prefix, sizes, config.hidden_size, make_linear)
        self._out = _fused(
            weights, prefix, {"o_proj": config.hidden_size}, config.num_attention_heads * config.head_dim, make_linear
        )
        self._q_norm = RmsNorm(weights(f"{prefix}.q_norm.weight", (config.head_dim,)), config.rms_norm_eps)
        self._k_norm = RmsNorm(weights(f"{prefix}.k_norm.weight", (config.head_dim,)), config.rms_norm_eps)

    def __call__(self, x: Tensor, batch: Batch, keys: Tensor, values: Tensor) -> Tensor:
        """X [tokens, hidden], keys and values [lanes, kv_heads, slots, head_dim] -> [tokens, hidden]."""
        heads = self._qkv(x).unflatten(-1, (-1, self._head_dim))  # [tokens, heads + 2 * kv_heads, head_dim]
        q, k, v = heads.split([self._num_heads, self._num_kv_heads, self._num_kv_heads], dim=1)
        q = self._q_norm(q)
        keys[batch.lanes, :, batch.slots] = batch.own_angle(self._k_norm(k))
        values[batch.lanes, :, batch.slots] = v
        window_queries, sink_queries = batch.own_angle(q), batch.sink_angle(q)
        mixed = [
            attend(sink_queries[row.tokens], window_queries[row.tokens], keys[row.lane], values[row.lane], row)
            for row in batch.rows
        ]
        return self._out(torch.cat(mixed))


class Mlp:
    """SwiGLU (arXiv 2002.05202)."""

    def __init__(self, config: Qwen3Config, weights: Weights, prefix: str, make_linear: MakeLinear) -> None:
        sizes = {"gate_proj": config.intermediate_size, "up_proj": config.intermediate_size}
        self._gate_up = _fused(weights, prefix, sizes, config.hidden_size, make_linear)
        self._down = _fused(weights, prefix, {"down_proj": config.hidden_size}, config.intermediate_size, make_linear)

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(torch.nn.functional.silu(gate) * up)


class DecoderLayer:
    """Attention and MLP, each after a norm and around a residual."""

    def __init__(self, config: Qwen3Config, weights: Weights, prefix: str, make_linear: MakeLinear) -> None:
        def norm(name: str) -> RmsNorm:
            return RmsNorm(weights(f"{prefix}.{name}.weight", (config.hidden_size,)), config.rms_norm_eps)

        self._attention_norm = norm("input_layernorm")
        self._attention = Attention(config, weights, f"{prefix}.self_attn", make_linear)
        self._mlp_norm = norm("post_attention_layernorm")
        self._mlp = Mlp(config, weights, f"{prefix}.mlp", make_linear)

    def __call__(self, x: Tensor, batch: Batch, keys: Tensor, values: Tensor) -> Tensor:
        """X [tokens, hidden] -> [tokens, hidden]."""
        x = x + self._attention(self._attention_norm(x), batch, keys, values)
        return x + self._mlp(self._mlp_norm(x))


class Qwen3:
    """The whole model.

    Raises ModelRefused where a tensor is missing or of the wrong shape.
    """

    def __init__(self, config: Qwen3Config, weights: Weights, make_linear: MakeLinear) -> None:
        vocabulary = (config.vocab_size, config.hidden_size)
        self._embedding = weights("model.embed_tokens.weight", vocabulary)
        self._layers = [
            DecoderLayer(config, weights, f"model.layers.{layer}", make_linear)
            for layer in range(config.num_hidden_layers)
        ]
        self._norm = RmsNorm(weights("model.norm.weight", (config.hidden_size,)), config.rms_norm_eps)
        is_tied = config.tie_word_embeddings
        self._head = make_linear(self._embedding if is_tied else weights("lm_head.weight", vocabulary), None)

    def forward(self, batch: Batch, slab: Slab) -> Tensor:
        """Runs a step's tokens through all layers; returns each row's last final hidden vector [rows, hidden]."""
        x = self._embedding[batch.token_ids]  # [tokens, hidden]
        for layer, keys, values in zip(self._layers, slab.keys, slab.values, strict=True):
            x = layer(x, batch, keys, values)
        return self._norm(x[batch.last_tokens])

    def logits(self, final_hidden: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, vocab]."""
        return self._head(final_hidden)


def _fused(weights: Weights, prefix: str, sizes: dict[str, int], in_features: int, make_linear: MakeLinear) -> Linear:
    """One linear layer in place of several over the same input; biases where the checkpoint has them."""
    matrices = [weights(f"{prefix}.{name}.weight", (size, in_features)) for name, size in sizes.items()]
    has_bias = f"{prefix}.{next(iter(sizes))}.bias" in weights
    biases = [weights(f"{prefix}.{name}.bias", (size,)) for name, size in sizes.items()] if has_bias else None
    return make_linear(torch.cat(matrices), torch.cat(biases) if biases else None)
