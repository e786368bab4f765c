"""The forward pass of a decoder over lanes, for every family; modules are named as the checkpoint's tensors."""

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from kakeya_worker.mlx_backend.attention import Attention
from kakeya_worker.mlx_backend.batch import Batch
from kakeya_worker.mlx_backend.norm import Norm
from kakeya_worker.mlx_backend.slab import Lane
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.models.output_head import plain_names


class Mlp(nn.Module):
    """SwiGLU (arXiv 2002.05202). mlx-lm's own is compiled when it first runs, on a CPU by the C++ compiler."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=config.mlp_bias)
        self.up_proj = nn.Linear(hidden, inner, bias=config.mlp_bias)
        self.down_proj = nn.Linear(inner, hidden, bias=config.mlp_bias)

    def __call__(self, x: mx.array) -> mx.array:
        """[tokens, hidden] -> [tokens, hidden]."""
        gate = self.gate_proj(x)
        down: mx.array = self.down_proj(gate * mx.sigmoid(gate) * self.up_proj(x))
        return down


class DecoderLayer(nn.Module):
    """Attention and MLP, each after a norm and around a residual."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = Mlp(config)

    def __call__(self, x: mx.array, batch: Batch, lanes: list[Lane]) -> mx.array:
        """X [tokens, hidden] -> [tokens, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), batch, lanes)
        return x + self.mlp(self.post_attention_layernorm(x))


class Stack(nn.Module):
    """The embedding, all layers and the last norm: `model` in the checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [DecoderLayer(config, layer) for layer in range(config.num_layers)]
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)

    def __call__(self, batch: Batch, lanes: list[Lane]) -> mx.array:
        """The final hidden vectors that are wanted; [kept, hidden]."""
        # A table in one of MLX's float formats gives bfloat16, whatever the activations are.
        x = self.embed_tokens(batch.token_ids).astype(self.norm.weight.dtype)  # [tokens, hidden]
        for layer in self.layers:
            x = layer(x, batch, lanes)
            mx.async_eval(x)  # computed while the next layers are described
        return self.norm(x[batch.kept_tokens])


class Decoder(nn.Module):
    """The whole model.

    Attributes:
        frequencies: of RoPE, in turns a token; [head_dim / 2].
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.frequencies: NDArray[np.float64] = config.rope_scaling.frequencies(config.rope_theta, config.head_dim)
        self.model = Stack(config)
        if not config.tied_head:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def sanitize(self, tensors: dict[str, mx.array]) -> dict[str, mx.array]:
        """Those that the model has, quantized or not: checkpoints bring some that nobody needs. Called by mlx-lm."""
        modules = {name for name, _ in self.named_modules()}
        named = plain_names(tensors).items()
        return {name: tensors[stored] for name, stored in named if name.rpartition(".")[0] in modules}

    def final_hidden(self, batch: Batch, lanes: list[Lane]) -> mx.array:
        """Runs a step's tokens through all layers, writes their K and V; [kept, hidden], not evaluated yet."""
        return self.model(batch, lanes)

    def logits(self, final_hidden: mx.array) -> mx.array:
        """[tokens, hidden] -> [tokens, vocab] in float32."""
        head = self.lm_head if "lm_head" in self else self.model.embed_tokens.as_linear
        logits: mx.array = head(final_hidden)
        return logits.astype(mx.float32)
