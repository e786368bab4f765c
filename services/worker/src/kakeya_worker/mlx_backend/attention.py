"""Attention under the law: K and V are written into the tokens' lanes, then each row attends over its own."""

from functools import reduce
from operator import add

import mlx.core as mx
from mlx import nn

from kakeya_worker.mlx_backend.batch import Batch, RowInBatch
from kakeya_worker.mlx_backend.norm import Norm
from kakeya_worker.mlx_backend.slab import Lane
from kakeya_worker.models.model_config import ModelConfig


class Attention(nn.Module):
    """Grouped-query attention of one layer. mlx-lm's own gives a query one angle; ours needs two."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        hidden, head_dim = config.hidden_size, config.head_dim
        self._layer, self._head_dim = layer, head_dim
        self._uses_rope, self._is_normed = layer not in config.layers_without_rope, config.qk_norm
        self.q_proj = nn.Linear(hidden, config.num_heads * head_dim, bias=config.qkv_bias)
        self.k_proj = nn.Linear(hidden, config.num_kv_heads * head_dim, bias=config.qkv_bias)
        self.v_proj = nn.Linear(hidden, config.num_kv_heads * head_dim, bias=config.qkv_bias)
        self.o_proj = nn.Linear(config.num_heads * head_dim, hidden, bias=config.output_bias)
        if config.qk_norm:
            self.q_norm = Norm(head_dim, config.rms_norm_eps)
            self.k_norm = Norm(head_dim, config.rms_norm_eps)

    def __call__(self, x: mx.array, batch: Batch, lanes: list[Lane]) -> mx.array:
        """X [tokens, hidden], a lane for each row -> [tokens, hidden]."""
        q, k, v = (self._heads(linear(x)) for linear in (self.q_proj, self.k_proj, self.v_proj))
        if self._is_normed:
            q, k = self.q_norm(q), self.k_norm(k)
        to_sinks = to_recent = q
        if self._uses_rope:
            k, to_recent, to_sinks = batch.own_angle(k), batch.own_angle(q), batch.sink_angle(q)
        mixed = []
        for row, lane in zip(batch.rows, lanes, strict=True):
            keys, values = lane.keys[self._layer], lane.values[self._layer]
            # Rounded and written before anything reads them: a token sees itself as all later ones will.
            _write(keys, k[row.tokens], row)
            _write(values, v[row.tokens], row)
            mixed.append(attend(to_sinks[row.tokens], to_recent[row.tokens], keys, values, row))
        out: mx.array = self.o_proj(mx.concatenate(mixed))
        return out

    def _heads(self, x: mx.array) -> mx.array:
        """[tokens, heads * head_dim] -> [tokens, heads, head_dim]."""
        return x.reshape(len(x), -1, self._head_dim)


def attend(to_sinks: mx.array, to_recent: mx.array, keys: mx.array, values: mx.array, row: RowInBatch) -> mx.array:
    """One row over its lane.

    Args:
        to_sinks: queries, rotated against the sinks; [queries, heads, head_dim].
        to_recent: the same queries, rotated against the other keys.
        keys: the lane's, rotated; [kv_heads, slots, head_dim].
        values: the lane's; [kv_heads, slots, head_dim].
        row: which of them the queries see.

    Returns:
        [queries, heads * head_dim].
    """
    num_queries, _, head_dim = to_recent.shape
    scores = _scores(to_sinks, keys, row.sinks) + _scores(to_recent, keys, row.recent)
    weights = _softmax(mx.concatenate(scores, axis=-1), row.visible, head_dim).astype(values.dtype)
    runs = (*row.sinks, *row.recent)
    ends = [sum(run.stop - run.start for run in runs[: number + 1]) for number in range(len(runs) - 1)]
    parts = mx.split(weights, ends, axis=-1)
    mixed = reduce(add, (part @ values[:, run] for part, run in zip(parts, runs, strict=True)))
    return mixed.reshape(len(keys), -1, num_queries, head_dim).transpose(2, 0, 1, 3).reshape(num_queries, -1)


def _write(held: mx.array, heads: mx.array, row: RowInBatch) -> None:
    """Puts a row's K or V [queries, kv_heads, head_dim] into its slots of [kv_heads, slots, head_dim]."""
    by_head = heads.swapaxes(0, 1)
    for tokens, slots in row.written:
        held[:, slots] = by_head[:, tokens]


def _scores(queries: mx.array, keys: mx.array, runs: tuple[slice, ...]) -> list[mx.array]:
    """Of queries [queries, heads, head_dim] against runs of slots; each [kv_heads, group * queries, slots]."""
    num_queries, _, head_dim = queries.shape
    # A group of heads shares its KV head.
    by_group = queries.reshape(num_queries, len(keys), -1, head_dim).transpose(1, 2, 0, 3)
    grouped = by_group.reshape(len(keys), -1, head_dim)
    return [grouped @ keys[:, run].swapaxes(-1, -2) for run in runs]


def _softmax(scores: mx.array, visible: mx.array | None, head_dim: int) -> mx.array:
    """Over the keys that are visible, in float32; scores [kv_heads, group * queries, keys]."""
    scaled = scores.astype(mx.float32) * head_dim**-0.5
    if visible is not None:
        num_queries, num_keys = visible.shape
        by_query = scaled.reshape(len(scores), -1, num_queries, num_keys)
        scaled = mx.where(visible, by_query, -mx.inf).reshape(scores.shape)
    return mx.softmax(scaled, axis=-1)
