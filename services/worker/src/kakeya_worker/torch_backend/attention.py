"""Attention of one row over its lane."""

from functools import reduce

import torch
from torch import Tensor

from kakeya_worker.torch_backend.batch import RowView


def attend(sink_queries: Tensor, window_queries: Tensor, keys: Tensor, values: Tensor, row: RowView) -> Tensor:
    """Grouped-query attention under the law.

    Args:
        sink_queries: rotated against the sinks; [queries, heads, head_dim].
        window_queries: rotated against the window; [queries, heads, head_dim].
        keys: the lane's; [kv_heads, slots, head_dim].
        values: the lane's; [kv_heads, slots, head_dim].
        row: what the queries see.

    Returns:
        [queries, heads * head_dim].
    """
    num_queries, num_heads, head_dim = sink_queries.shape
    num_kv_heads = keys.shape[0]
    runs = (row.sink_slots, *row.window_slots)
    to_sinks, to_window = (_grouped(queries, num_kv_heads) for queries in (sink_queries, window_queries))
    scores = [to_sinks @ keys[:, row.sink_slots].mT]
    scores += [to_window @ keys[:, run].mT for run in row.window_slots]
    weights = _softmax(torch.cat(scores, dim=-1), row.hidden, head_dim)  # [kv_heads, group * queries, keys]
    parts = weights.to(values.dtype).split([run.stop - run.start for run in runs], dim=-1)
    mixed = reduce(torch.add, (part @ values[:, run] for part, run in zip(parts, runs, strict=True)))
    out: Tensor = mixed.unflatten(1, (-1, num_queries)).permute(2, 0, 1, 3).reshape(num_queries, num_heads * head_dim)
    return out


def _grouped(queries: Tensor, num_kv_heads: int) -> Tensor:
    """[queries, heads, head_dim] -> [kv_heads, group * queries, head_dim]; a group shares its KV head."""
    grouped: Tensor = queries.unflatten(1, (num_kv_heads, -1)).permute(1, 2, 0, 3)
    return grouped.flatten(1, 2)


def _softmax(scores: Tensor, hidden: Tensor, head_dim: int) -> Tensor:
    """Over the keys that are not hidden, in float32; scores [kv_heads, group * queries, keys]."""
    by_query: Tensor = scores.float().unflatten(1, (-1, hidden.shape[0])) * head_dim**-0.5
    return by_query.masked_fill(hidden, -torch.inf).softmax(dim=-1).flatten(1, 2)
