"""A session of the reference: every key and value it ever had, one token after the other."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.conformance.exact_reference import int8_kv
from kakeya_worker.conformance.exact_reference.formulas import (
    Floats,
    by_halves,
    exp,
    one_after_the_other,
    rotate,
    rounded_to_bfloat16,
    swiglu,
)
from kakeya_worker.conformance.exact_reference.model import ExactReference, ReferenceLayer

_BLOCK = 16


@dataclass(frozen=True)
class _Sight:
    """What one token sees.

    Attributes:
        keys: V(p), ascending; [visible].
        num_sinks: how many of them are sinks.
        block: of each key, counted from 0, sinks first; [visible].
        place: of each key within its block; [visible].
        own: angles of the token itself, and of its query against recent keys.
        to_sinks: angles of its query against the sinks.
    """

    keys: NDArray[np.int64]
    num_sinks: int
    block: NDArray[np.int64]
    place: NDArray[np.int64]
    own: tuple[Floats, Floats]
    to_sinks: tuple[Floats, Floats]


class ReferenceSession:
    """A history, and the logits after its last token.

    Args:
        sink: S.
        window: W.

    Attributes:
        token_ids: the history.
    """

    def __init__(self, model: ExactReference, sink: int, window: int) -> None:
        self._model = model
        self._sink = sink
        self._window = window
        self._kv: list[list[Floats]] = [[] for _ in model.layers]  # by layer and token, as `_stored` makes them
        self._last = np.zeros(0, np.float32)  # the last token's activation after all layers; [hidden]
        self.token_ids: list[int] = []

    def fork(self) -> "ReferenceSession":
        """One with the same history."""
        fork = ReferenceSession(self._model, self._sink, self._window)
        fork._kv = [kv.copy() for kv in self._kv]
        fork._last, fork.token_ids = self._last, self.token_ids.copy()
        return fork

    def extend(self, token_ids: Iterable[int]) -> None:
        """Appends tokens."""
        for token_id in token_ids:
            self._append(token_id)

    def logits(self) -> Floats:
        """After the last token; [vocab]."""
        return self._model.logits(self._last)

    def _append(self, token_id: int) -> None:
        model, sight = self._model, self._sight(len(self.token_ids))
        x = model.embedding.row(token_id)
        for layer, kv in zip(model.layers, self._kv, strict=True):
            x = x + self._attention(layer, model.norm(x, layer.attention_norm), kv, sight)
            gate, up = np.split(layer.gate_up(model.norm(x, layer.mlp_norm)), 2)
            x = x + layer.down(swiglu(gate, up))
        self._last = x
        self.token_ids.append(token_id)

    def _sight(self, p: int) -> _Sight:
        """V(p) = { j <= p : j < S or j > p - W }."""
        j = np.arange(p + 1)
        keys = j[(j < self._sink) | (j > p - self._window)]
        # Blocks of 16 by history index; the sinks' are their own.
        blocks = np.stack([keys >= self._sink, keys // _BLOCK])
        is_new = np.any(np.diff(blocks, axis=1, prepend=blocks[:, :1]), axis=0)
        angles = self._model.angles
        return _Sight(
            keys=keys,
            num_sinks=int(np.count_nonzero(keys < self._sink)),
            block=np.cumsum(is_new),
            place=keys % _BLOCK,
            own=angles.at(p),
            to_sinks=angles.at(min(p, self._sink + self._window - 1)),
        )

    def _attention(self, layer: ReferenceLayer, x: Floats, kv: list[Floats], sight: _Sight) -> Floats:
        """[hidden] -> [hidden]; appends the token's own K and V, which it sees as all later ones will."""
        model = self._model
        heads = layer.qkv(x).reshape(-1, model.head_dim)
        q, k, v = np.split(heads, [model.num_heads, model.num_heads + model.num_kv_heads])
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = model.norm(q, layer.q_norm), model.norm(k, layer.k_norm)
        to_sinks = to_recent = q
        if layer.uses_rope:
            k, to_recent, to_sinks = rotate(k, *sight.own), rotate(q, *sight.own), rotate(q, *sight.to_sinks)
        kv.append(_stored(k, v, model.kv_dtype))
        keys, values = np.stack([kv[j] for j in sight.keys], axis=2)  # each [kv_heads, visible, head_dim or more]
        scores_of = int8_kv.scores if model.kv_dtype == "int8" else _scores
        to_keys = (to_sinks, keys[:, : sight.num_sinks]), (to_recent, keys[:, sight.num_sinks :])
        scores = np.concatenate([scores_of(*each) for each in to_keys], axis=-1)
        if model.kv_dtype == "int8":
            return layer.out(int8_kv.mix(scores, values, sight.block, sight.place).reshape(-1))
        return layer.out(_mix(scores, values, sight).reshape(-1))


def _stored(k: Floats, v: Floats, kv_dtype: str) -> Floats:
    """As every token sees them; [2, kv_heads, head_dim], of int8 with the scales behind."""
    if kv_dtype == "int8":
        return int8_kv.slots(np.stack([int8_kv.spread(k), v]))
    own = np.stack([k, v])
    return rounded_to_bfloat16(own) if kv_dtype == "bfloat16" else own


def _scores(queries: Floats, keys: Floats) -> Floats:
    """[heads, head_dim] and [kv_heads, keys, head_dim] -> [kv_heads, group, keys]; heads share KV heads in turn."""
    num_kv_heads, _, head_dim = keys.shape
    grouped = queries.reshape(num_kv_heads, -1, 1, head_dim)
    return by_halves(grouped * keys[:, None]) * np.float32(1 / math.sqrt(head_dim))


def _mix(scores: Floats, values: Floats, sight: _Sight) -> Floats:
    """Softmax times values; -> [kv_heads, group, head_dim].

    Within a block one key after the other, then one block after the other. The weights are summed the same way, as
    the weights of one more value that is always 1.
    """
    weights = exp(scores - scores.max(axis=-1, keepdims=True))
    extended = np.concatenate([values, np.ones_like(values[..., :1])], axis=-1)
    terms = weights[..., None] * extended[:, None]  # [kv_heads, group, visible, head_dim + 1]
    kv_heads, group, _, size = terms.shape
    placed = np.zeros((_BLOCK, sight.block[-1] + 1, kv_heads, group, size), np.float32)  # a missing key adds 0
    placed[sight.place, sight.block] = np.moveaxis(terms, 2, 0)
    total = one_after_the_other(one_after_the_other(placed))
    return total[..., :-1] / total[..., -1:]
