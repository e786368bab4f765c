"""The forward pass of a decoder over a slab, for every family and in every kind of numerics."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kakeya_worker.engine.seams.row import Row
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.models.output_head import EMBEDDING, HEAD
from kakeya_worker.torch_backend.batch import Batch, assemble
from kakeya_worker.torch_backend.layer_tensors import FINAL_NORM, layer_tensors
from kakeya_worker.torch_backend.loading import reported
from kakeya_worker.torch_backend.numerics import Numerics, RowQueries
from kakeya_worker.torch_backend.rope import Rope
from kakeya_worker.torch_backend.slab import Slab


class Attention:
    """Writes the tokens' K and V into their lanes, then attends row by row."""

    def __init__(self, config: ModelConfig, numerics: Numerics[Any], layer: int) -> None:
        names = layer_tensors(config, layer)
        self._numerics = numerics
        self._heads = [config.num_heads, config.num_kv_heads, config.num_kv_heads]
        self._head_dim = config.head_dim
        self._uses_rope = layer not in config.layers_without_rope
        self._qkv = numerics.linear(names.qkv)
        self._out = numerics.linear(names.out)
        self._q_norm = self._k_norm = None
        if names.q_norm is not None and names.k_norm is not None:
            self._q_norm = numerics.norm(names.q_norm, config.head_dim, config.rms_norm_eps)
            self._k_norm = numerics.norm(names.k_norm, config.head_dim, config.rms_norm_eps)

    def __call__(self, x: Tensor, batch: Batch, keys: Tensor, values: Tensor) -> Tensor:
        """X [tokens, hidden], keys and values [lanes, kv_heads, slots, slot] -> [tokens, hidden]."""
        heads = self._qkv(x).unflatten(-1, (-1, self._head_dim))  # [tokens, heads + 2 * kv_heads, head_dim]
        q, k, v = heads.split(self._heads, dim=1)
        if self._q_norm is not None and self._k_norm is not None:
            q, k = self._q_norm(q), self._k_norm(k)
        to_sinks = to_recent = q
        if self._uses_rope:
            k, to_recent, to_sinks = batch.own_angle(k), batch.own_angle(q), batch.sink_angle(q)
        # Rounded and written before anything reads them: a token sees itself as all later ones will.
        keys[batch.lanes, :, batch.slots] = self._numerics.stored_keys(k)
        values[batch.lanes, :, batch.slots] = self._numerics.stored_values(v)
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
        names = layer_tensors(config, layer)
        self._swiglu = numerics.swiglu
        self._gate_up = numerics.linear(names.gate_up)
        self._down = numerics.linear(names.down)

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(self._swiglu(gate, up))


class DecoderLayer:
    """Attention and MLP, each after a norm and around a residual."""

    def __init__(self, config: ModelConfig, numerics: Numerics[Any], layer: int) -> None:
        names = layer_tensors(config, layer)
        self._attention_norm = numerics.norm(names.attention_norm, config.hidden_size, config.rms_norm_eps)
        self._attention = Attention(config, numerics, layer)
        self._mlp_norm = numerics.norm(names.mlp_norm, config.hidden_size, config.rms_norm_eps)
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
        self._numerics = numerics
        self._rope = Rope(config.rope_scaling.frequencies(config.rope_theta, config.head_dim))
        self._embedding = numerics.embedding(EMBEDDING, config.vocab_size, config.hidden_size)
        self._layers = [DecoderLayer(config, numerics, layer) for layer in reported(config.num_layers)]
        self._norm = numerics.norm(FINAL_NORM, config.hidden_size, config.rms_norm_eps)
        self._scored: dict[int, Tensor] = {}  # by lane; each [tokens, hidden]
        if config.tied_head:
            self._head = self._embedding.as_head()
        else:
            self._head = numerics.embedding(HEAD, config.vocab_size, config.hidden_size).as_head()

    def bind(self, slab: Slab) -> None:
        """The slab that all later steps run over."""
        self._slab = slab

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row]) -> None:
        """Runs a step's tokens through all layers; each row's last final hidden vector goes to its lane, and those of
        scored rows are kept.
        """
        self._scored = {}
        batch = assemble(rows, self._rope, self._numerics)
        x = self._embedding.rows(batch.token_ids)  # [tokens, hidden]
        for layer, keys, values in zip(self._layers, self._slab.keys, self._slab.values, strict=True):
            x = layer(x, batch, keys, values)
        self._slab.final_hidden[batch.row_lanes] = self._norm(x[batch.last_tokens])
        self._scored = {row.lane: self._norm(x[row.tokens]) for row in batch.rows if row.is_scored}

    @torch.inference_mode()
    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """[lanes, vocab]."""
        return self._logits(self._slab.final_hidden[list(lanes)])

    @torch.inference_mode()
    def scored_logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """[tokens of all, vocab]."""
        return self._logits(torch.cat([self._scored[lane] for lane in lanes]))

    @torch.inference_mode()
    def shorten(self, lane: int, num_tokens: int) -> None:
        """The lane ends with the first tokens of its scored row."""
        self._slab.final_hidden[lane] = self._scored[lane][num_tokens - 1]

    def _logits(self, hidden: Tensor) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self._head(hidden).float().numpy()
        return logits
