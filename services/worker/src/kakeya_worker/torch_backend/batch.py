"""A step's rows as tensors: where each token is written and how it is rotated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.engine.seams.row import Row
from kakeya_worker.torch_backend.numerics import Numerics
from kakeya_worker.torch_backend.rope import Rope, Rotation


@dataclass(frozen=True)
class RowInBatch:
    """One row's share of a batch: its tokens, half-open, its lane, whether it is scored, and what the numerics need to
    know of it.
    """

    tokens: slice
    lane: int
    is_scored: bool
    view: Any


@dataclass(frozen=True)
class Batch:
    """All rows of a step, their tokens one after the other.

    Attributes:
        token_ids: [tokens].
        lanes: the lane of each token; [tokens].
        slots: the slot that each token's K and V are written to; [tokens].
        own_angle: rotates keys, and queries against recent keys.
        sink_angle: rotates queries against the sinks.
        rows: one a row.
        last_tokens: each row's last token; [rows].
        row_lanes: [rows].
    """

    token_ids: Tensor
    lanes: Tensor
    slots: Tensor
    own_angle: Rotation
    sink_angle: Rotation
    rows: tuple[RowInBatch, ...]
    last_tokens: Tensor
    row_lanes: Tensor


def assemble(rows: Sequence[Row], rope: Rope, numerics: Numerics[Any]) -> Batch:
    """Lays rows out for one forward pass."""
    lengths = [len(row.token_ids) for row in rows]
    ends = np.cumsum(lengths)
    row_lanes = np.array([row.lane for row in rows])
    return Batch(
        token_ids=torch.tensor([token for row in rows for token in row.token_ids]),
        lanes=torch.from_numpy(np.repeat(row_lanes, lengths)),
        slots=torch.from_numpy(np.concatenate([row.slots for row in rows])),
        own_angle=rope.at(np.concatenate([row.positions for row in rows])),
        sink_angle=rope.at(np.concatenate([row.sink_positions for row in rows])),
        rows=tuple(
            RowInBatch(slice(int(end) - length, int(end)), row.lane, row.is_scored, numerics.view(row))
            for row, length, end in zip(rows, lengths, ends, strict=True)
        ),
        last_tokens=torch.from_numpy(ends - 1),
        row_lanes=torch.from_numpy(row_lanes),
    )
