"""Attention under the law: K and V are written into the tokens' lanes, then each row attends over its own."""

from functools import reduce
from itertools import accumulate
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
        self._layer, self._head_dim, self._num_kv_heads = layer, head_dim, config.num_kv_heads
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
        q = q * self._head_dim**-0.5  # here, where it is one operation for all rows and no score is there yet
        to_sinks = to_recent = q
        if self._uses_rope:
            k, to_recent, to_sinks = batch.own_angle(k), batch.own_angle(q), batch.sink_angle(q)
        k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)  # [kv_heads, tokens, head_dim]
        to_sinks, to_recent = self._by_group(to_sinks), self._by_group(to_recent)
        mixed = []
        for row, lane in zip(batch.rows, lanes, strict=True):
            keys, values = lane.keys[self._layer], lane.values[self._layer]
            # Rounded and written before anything reads them: a token sees itself as all later ones will.
            for tokens, slots in row.written:
                keys[:, slots] = k[:, tokens]
                values[:, slots] = v[:, tokens]
            mixed.append(attend(to_sinks[:, row.tokens], to_recent[:, row.tokens], keys, values, row))
        by_token = mx.concatenate(mixed, axis=1).swapaxes(0, 1)  # [tokens, kv_heads, group, head_dim]
        out: mx.array = self.o_proj(by_token.reshape(len(x), -1))
        return out

    def _heads(self, x: mx.array) -> mx.array:
        """[tokens, heads * head_dim] -> [tokens, heads, head_dim]."""
        return x.reshape(len(x), -1, self._head_dim)

    def _by_group(self, queries: mx.array) -> mx.array:
        """[tokens, heads, head_dim] -> [kv_heads, tokens, group, head_dim]: a group of heads shares its KV head."""
        return queries.reshape(len(queries), self._num_kv_heads, -1, self._head_dim).swapaxes(0, 1)


def attend(to_sinks: mx.array, to_recent: mx.array, keys: mx.array, values: mx.array, row: RowInBatch) -> mx.array:
    """One row over its lane.

    Args:
        to_sinks: queries, scaled and rotated against the sinks; [kv_heads, queries, group, head_dim].
        to_recent: the same queries, rotated against the other keys.
        keys: the lane's, rotated; [kv_heads, slots, head_dim].
        values: the lane's; [kv_heads, slots, head_dim].
        row: which of them the queries see.

    Returns:
        [kv_heads, queries, group, head_dim].
    """
    scores = _scores(to_sinks, keys, row.sinks) + _scores(to_recent, keys, row.recent)
    weights = _softmax(mx.concatenate(scores, axis=-1), row.visible)
    runs = (*row.sinks, *row.recent)
    ends = list(accumulate(run.stop - run.start for run in runs[:-1]))
    parts = mx.split(weights, ends, axis=-1)
    mixed = reduce(add, (part @ values[:, run] for part, run in zip(parts, runs, strict=True)))
    return mixed.reshape(to_recent.shape)


def _scores(queries: mx.array, keys: mx.array, runs: tuple[slice, ...]) -> list[mx.array]:
    """Of queries [kv_heads, queries, group, head_dim] against runs of slots: [kv_heads, queries * group, slots]."""
    flat = queries.reshape(len(keys), -1, keys.shape[-1])
    return [flat @ keys[:, run].swapaxes(-1, -2) for run in runs]


def _softmax(scores: mx.array, visible: mx.array | None) -> mx.array:
    """Over the keys that are visible, in float32, rounded once; scores [kv_heads, queries * group, keys]."""
    if visible is not None:
        num_queries, num_keys = visible.shape
        by_query = scores.reshape(len(scores), num_queries, -1, num_keys)
        scores = mx.where(visible[:, None], by_query, -mx.inf).reshape(scores.shape)
    return mx.softmax(scores, axis=-1, precise=True)
