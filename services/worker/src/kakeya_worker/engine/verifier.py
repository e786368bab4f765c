"""The verifier seam: what the engine asks of a backend.

A backend is found by the entry point group `kakeya.verifier`; the entry point names a class with the
constructor and methods of `Verifier`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.lane import LaneGeometry, Row


@dataclass(frozen=True)
class ModelFacts:
    """What the engine and the contract need to know of a model.

    Attributes:
        backend: the plugin's name.
        dtype: of weights, activations and KV: float32 or bfloat16.
        vocab_size: token ids are below it.
        max_positions: the model's max_position_embeddings; S + W may not exceed it.
        kv_bytes_per_token: K and V of one token over all layers, from the arrays' own dtype.
    """

    backend: str
    dtype: str
    vocab_size: int
    max_positions: int
    kv_bytes_per_token: int


class ModelRefused(Exception):
    """The model cannot run here; the message says why and what can."""


class Verifier(Protocol):
    """A model's forward pass over a slab. Used by one thread at a time.

    Construction (`Verifier(model, dtype=..., num_threads=...)`) loads a model from a local directory or a
    hub id and raises ModelRefused.
    """

    facts: ModelFacts

    def __init__(self, model: str, *, dtype: str, num_threads: int) -> None: ...

    def allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        """Allocates the slab: all KV there will ever be."""
        ...

    def forward(self, rows: Sequence[Row]) -> None:
        """Writes the rows' K and V into their lanes, attends under the law, and keeps the final hidden vector
        of each row's last token with its lane. A lane has at most one row.
        """
        ...

    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """The logits after the last token of each lane, from its final hidden vector; [lanes, vocab]."""
        ...
