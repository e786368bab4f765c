"""Attention in a fixed order, that of `key_blocks`.

A key that a query does not see adds an exact zero, so that it does not matter which other queries share the row.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.torch_backend.exact.arithmetic import exp, fold
from kakeya_worker.torch_backend.exact.attention.key_blocks import BLOCK
from kakeya_worker.torch_backend.exact.attention.row_view import ExactRowView
from kakeya_worker.torch_backend.numerics import RowQueries, grouped, ungrouped

_TILE = 1 << 18  # elements of an intermediate tensor, so that it stays in a cache; queries are independent


def attend(queries: RowQueries, keys: Tensor, values: Tensor, view: ExactRowView) -> Tensor:
    """See `Numerics.attend`; float32 out of keys and values of any type."""
    num_queries = queries.to_recent.shape[0]
    k, v = (_gather(tensor, view) for tensor in (keys, values))  # [kv_heads, keys, head_dim]
    to_sinks, to_recent = (grouped(q, keys.shape[0]) for q in (queries.to_sinks, queries.to_recent))
    scores = torch.cat([_dots(to_sinks, k[:, : view.num_sinks]), _dots(to_recent, k[:, view.num_sinks :])], dim=-1)
    hidden = ~view.visible.repeat(to_recent.shape[1] // num_queries, 1)  # [group * queries, keys]
    return ungrouped(_mix(scores.masked_fill_(hidden, -torch.inf), v), num_queries)


def _gather(lane: Tensor, view: ExactRowView) -> Tensor:
    """[kv_heads, slots, head_dim] -> [kv_heads, keys, head_dim] in float32, zero where there is no key."""
    gathered: Tensor = lane.index_select(1, view.slots).float()
    return gathered.index_fill_(1, view.absent, 0.0)


def _dots(queries: Tensor, keys: Tensor) -> Tensor:
    """Scaled products of [kv_heads, queries, head_dim] with [kv_heads, keys, head_dim] -> [kv_heads, queries, keys].

    Folded by halves over head_dim, which stands first so that each addition runs over long rows.
    """
    num_kv_heads, num_queries, head_dim = queries.shape
    scale = np.float32(1 / math.sqrt(head_dim)).item()
    dots = keys.new_empty(num_kv_heads, num_queries, keys.shape[1])
    num_at_once = max(1, _TILE // max(1, keys[0].numel()))  # queries of one head
    num_heads = min(num_kv_heads, max(1, num_at_once // max(1, num_queries)))
    for first in range(0, num_kv_heads, num_heads):
        some = slice(first, first + num_heads)
        q, k = (each[some].movedim(-1, 0).contiguous() for each in (queries, keys))  # head_dim first
        for start in range(0, num_queries, num_at_once):
            tile = slice(start, start + num_at_once)
            dots[some, tile] = fold(q[:, :, tile, None] * k[:, :, None, :], dim=0) * scale
    return dots


def _mix(scores: Tensor, values: Tensor) -> Tensor:
    """Softmax of [kv_heads, queries, keys] times values [kv_heads, keys, size] -> [kv_heads, queries, size]."""
    weights = exp(scores - scores.amax(dim=-1, keepdim=True)).unflatten(-1, (-1, BLOCK))
    blocks = values.unflatten(1, (-1, BLOCK))
    num_at_once = max(1, _TILE // blocks[..., 0, :].numel())
    mixed = torch.cat([_sums(tile, blocks) for tile in weights.split(num_at_once, dim=1)], dim=1)
    total = _added(_added(weights.unbind(-1)).unbind(-1))[..., None]
    return torch.div(mixed, total.expand_as(mixed))


def _sums(weights: Tensor, values: Tensor) -> Tensor:
    """Weighted values, added within a block one after the other, and then the blocks.

    weights [kv_heads, queries, blocks, 16], values [kv_heads, blocks, 16, size] -> [kv_heads, queries, size].
    """
    weighted = weights.new_empty(*weights.shape[:3], values.shape[-1])
    of_places = (torch.mul(weights[..., n, None], values[:, None, :, n], out=weighted) for n in range(BLOCK))
    return _added(_added(of_places).unbind(dim=2))


def _added(parts: Iterable[Tensor]) -> Tensor:
    """From zero on one after the other, each before the next is asked for; there is at least one."""
    left = iter(parts)
    total: Tensor = 0.0 + next(left)
    for part in left:
        total += part
    return total
