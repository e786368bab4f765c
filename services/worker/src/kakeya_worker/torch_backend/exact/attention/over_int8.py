"""Attention over int8 keys and values in a fixed order, that of `key_blocks`; docs/numerics.md, "Int8 KV".

Products are whole numbers below 2^53 of which float64 rounds none, or below 2^24 of which float32 rounds none.
"""

import math

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.engine.seams.int8_slots import spread_size
from kakeya_worker.torch_backend.exact.arithmetic import divide, exp, fold
from kakeya_worker.torch_backend.exact.attention.int8_kv import LEAST_SCALE, as_queries, of_slots, spread
from kakeya_worker.torch_backend.exact.attention.key_blocks import BLOCK
from kakeya_worker.torch_backend.exact.attention.row_view import ExactRowView
from kakeya_worker.torch_backend.numerics import RowQueries, grouped, ungrouped

_WEIGHT_LIMIT = 255.0
_TILE = 1 << 20  # elements of an intermediate tensor, so that memory is bounded; queries are independent


def attend(queries: RowQueries, keys: Tensor, values: Tensor, view: ExactRowView) -> Tensor:
    """See `Numerics.attend`; float32 out of slots, uint8 [kv_heads, slots, head_dim + 2]."""
    num_queries = queries.to_recent.shape[0]
    (k, key_scales), (v, value_scales) = (of_slots(each.index_select(1, view.slots)) for each in (keys, values))
    to_sinks, to_recent = (grouped(spread(q), len(keys)) for q in (queries.to_sinks, queries.to_recent))
    sinks = slice(view.num_sinks)
    recent = slice(view.num_sinks, None)
    scores = torch.cat(
        [_scores(to_sinks, k[:, sinks], key_scales[:, sinks]), _scores(to_recent, k[:, recent], key_scales[:, recent])],
        dim=-1,
    )
    hidden = ~view.visible.repeat(to_recent.shape[1] // num_queries, 1)  # [group * queries, keys]
    at_once = max(1, _TILE // max(1, len(view.slots) // BLOCK * len(keys) * v.shape[-1]))
    tiles = zip(scores.split(at_once, dim=1), hidden.split(at_once), strict=True)
    mixed = torch.cat([_mix(tile, of_tile, v, value_scales) for tile, of_tile in tiles], dim=1)
    return ungrouped(mixed, num_queries)


def _scores(queries: Tensor, keys: Tensor, scales: Tensor) -> Tensor:
    """Scaled products of [kv_heads, queries, head_dim] with int8 [kv_heads, keys, head_dim] ->
    [kv_heads, queries, keys].
    """
    head_dim = queries.shape[-1]
    numbers, query_scales = as_queries(queries)
    products = (numbers @ keys.double().mT).float()
    scale = np.float32(1 / math.sqrt(head_dim)).item() / spread_size(head_dim)
    return products * scales[:, None] * (query_scales * scale)[..., None]


def _mix(scores: Tensor, hidden: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """Softmax of [kv_heads, queries, keys] times int8 values [kv_heads, keys, size] -> [kv_heads, queries, size]."""
    scores = scores.masked_fill(hidden, -torch.inf)
    weights = exp(scores - scores.amax(dim=-1, keepdim=True))
    scaled = (weights * scales[:, None]).masked_fill(hidden, 0.0).unflatten(-1, (-1, BLOCK))  # [.., blocks, 16]
    largest = scaled.amax(dim=-1, keepdim=True)
    inverse = divide(_WEIGHT_LIMIT, largest).masked_fill(largest < LEAST_SCALE, 0.0)
    blocks = values.unflatten(1, (-1, BLOCK)).float()
    products = _whole(scaled * inverse).movedim(2, 1) @ blocks  # [kv_heads, blocks, queries, size]
    of_blocks = products * torch.div(largest, torch.full_like(largest, _WEIGHT_LIMIT)).movedim(2, 1)
    total = _added(of_blocks.movedim(1, 0))
    weight = fold(_added(weights.unflatten(-1, (-1, BLOCK)).movedim(2, 0)), dim=-1)[..., None]
    return torch.div(total, weight.expand_as(total))


def _whole(x: Tensor) -> Tensor:
    """To the nearest, ties to even."""
    return x.round()


def _added(parts: Tensor) -> Tensor:
    """Along the first dimension, from zero on one after the other."""
    total = torch.zeros_like(parts[0])
    for part in parts:
        total += part
    return total
