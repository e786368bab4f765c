"""The forward pass of a decoder over a slab, for every family and in every kind of numerics."""

import time
from collections.abc import Iterator
from typing import Any

import structlog
import torch
from torch import Tensor

from kakeya_worker.torch_backend.batch import Batch
from kakeya_worker.torch_backend.model_config import ModelConfig
from kakeya_worker.torch_backend.numerics import LinearSpec, Numerics, RowQueries
from kakeya_worker.torch_backend.slab import Slab

_log = structlog.get_logger()
_REPORT_SECONDS = 5.0


class Attention:
    """Writes the tokens' K and V into their lanes, then attends row by row."""

    def __init__(self, config: ModelConfig, numerics: Numerics[Any], layer: int) -> None:
        self._numerics = numerics
        self._heads = [config.num_heads, config.num_kv_heads, config.num_kv_heads]
        self._head_dim = config.head_dim
        self._uses_rope = layer not in config.layers_without_rope
        prefix = f"model.layers.{layer}.self_attn"
        parts = [
            (name, num * config.head_dim) for name, num in zip(("q_proj", "k_proj", "v_proj"), self._heads, strict=True)
        ]
        self._qkv = numerics.linear(LinearSpec(prefix, tuple(parts), config.hidden_size, config.qkv_bias))
        out = LinearSpec(
            prefix, (("o_proj", config.hidden_size),), config.num_heads * config.head_dim, config.output_bias
        )
        self._out = numerics.linear(out)
        self._q_norm = self._k_norm = None
        if config.qk_norm:
            self._q_norm = numerics.norm(f"{prefix}.q_norm", config.head_dim, config.rms_norm_eps)
            self._k_norm = numerics.norm(f"{prefix}.k_norm", config.head_dim, config.rms_norm_eps)

    def __call__(self, x: Tensor, batch: Batch, keys: Tensor, values: Tensor) -> Tensor:
        """X [tokens, hidden], keys and values [lanes, kv_heads, slots, head_dim] -> [tokens, hidden]."""
        heads = self._qkv(x).unflatten(-1, (-1, self._head_dim))  # [tokens, heads + 2 * kv_heads, head_dim]
        q, k, v = heads.split(self._heads, dim=1)
        if self._q_norm is not None and self._k_norm is not None:
            q, k = self._q_norm(q), self._k_norm(k)
        to_sinks = to_recent = q
        if self._uses_rope:
            k, to_recent, to_sinks = batch.own_angle(k), batch.own_angle(q), batch.sink_angle(q)
        # Rounded and written before anything reads them: a token sees itself as all later ones will.
        keys[batch.lanes, :, batch.slots] = self._numerics.round_kv(k)
        values[batch.lanes, :, batch.slots] = self._numerics.round_kv(v)
        mixed = [
            self._numerics.attend(
                RowQueries(to_sinks[row.tokens], to_recent[row.tokens]), keys[row.lane], values[row.lane], row.view
            )
            for row in batch.rows
        ]
        return self._out(torch.cat(mixed))


class Mlp:
    """SwiGLU (arXiv 2002.05202)."""

    def __init__(self, config: ModelConfig, numerics: Numerics[Any], layer: int) -> None:
        self._swiglu = numerics.swiglu
        prefix = f"model.layers.{layer}.mlp"
        hidden, inner = config.hidden_size, config.intermediate_size
        gate_up = LinearSpec(prefix, (("gate_proj", inner), ("up_proj", inner)), hidden, config.mlp_bias)
        self._gate_up = numerics.linear(gate_up)
        self._down = numerics.linear(LinearSpec(prefix, (("down_proj", hidden),), inner, config.mlp_bias))

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(self._swiglu(gate, up))


class DecoderLayer:
    """Attention and MLP, each after a norm and around a residual."""

    def __init__(self, config: ModelConfig, numerics: Numerics[Any], layer: int) -> None:
        prefix = f"model.layers.{layer}"
        self._attention_norm = numerics.norm(f"{prefix}.input_layernorm", config.hidden_size, config.rms_norm_eps)
        self._attention = Attention(config, numerics, layer)
        self._mlp_norm = numerics.norm(f"{prefix}.post_attention_layernorm", config.hidden_size, config.rms_norm_eps)
        self._mlp = Mlp(config, numerics, layer)

    def __call__(self, x: Tensor, batch: Batch, keys: Tensor, values: Tensor) -> Tensor:
        """X [tokens, hidden] -> [tokens, hidden]."""
        x = x + self._attention(self._attention_norm(x), batch, keys, values)
        return x + self._mlp(self._mlp_norm(x))


class Decoder:
    """The whole model.

    Raises:
        ModelRefused: a tensor is missing or of the wrong shape.
    """

    def __init__(self, config: ModelConfig, numerics: Numerics[Any]) -> None:
        self._embedding = numerics.embedding("model.embed_tokens", config.vocab_size, config.hidden_size)
        self._layers = [DecoderLayer(config, numerics, layer) for layer in _reported(config.num_layers)]
        self._norm = numerics.norm("model.norm", config.hidden_size, config.rms_norm_eps)
        if config.tied_head:
            self._head = self._embedding.as_head()
        else:
            self._head = numerics.embedding("lm_head", config.vocab_size, config.hidden_size).as_head()

    def forward(self, batch: Batch, slab: Slab) -> Tensor:
        """Runs a step's tokens through all layers; returns each row's last final hidden vector [rows, hidden]."""
        x = self._embedding.rows(batch.token_ids)  # [tokens, hidden]
        for layer, keys, values in zip(self._layers, slab.keys, slab.values, strict=True):
            x = layer(x, batch, keys, values)
        return self._norm(x[batch.last_tokens])

    def logits(self, final_hidden: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, vocab]."""
        return self._head(final_hidden)


def _reported(num_layers: int) -> Iterator[int]:
    """The layers' numbers, with a log line now and then while loading them takes long."""
    reported = time.monotonic()
    for layer in range(num_layers):
        yield layer
        if time.monotonic() - reported > _REPORT_SECONDS:
            reported = time.monotonic()
            _log.info("loading layers", loaded=layer + 1, of=num_layers)
