"""A step's rows as tensors: where each token is written, how it is rotated, and what it sees."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.engine.lane import LaneGeometry, Row
from kakeya_worker.torch_backend.rope import Rope, Rotation


@dataclass(frozen=True)
class RowView:
    """One row's share of a batch.

    Its keys are the sinks and then the window in the order of the history: never the order of the ring, which
    depends on the slack, and never a slot that no query of the row sees.

    Attributes:
        tokens: the row's tokens in the batch, half-open.
        lane: index in the slab.
        sink_slots: of the sinks.
        window_slots: runs of slots of the window, in the order of the history.
        hidden: the keys that a query must not see all the same; [queries, keys], True where hidden.
    """

    tokens: slice
    lane: int
    sink_slots: slice
    window_slots: tuple[slice, ...]
    hidden: Tensor


@dataclass(frozen=True)
class Batch:
    """All rows of a step, their tokens one after the other.

    Attributes:
        token_ids: [tokens].
        lanes: the lane of each token; [tokens].
        slots: the slot that each token's K and V are written to; [tokens].
        own_angle: rotates keys, and queries against the window.
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
    rows: tuple[RowView, ...]
    last_tokens: Tensor
    row_lanes: Tensor


def assemble(rows: Sequence[Row], geometry: LaneGeometry, rope: Rope) -> Batch:
    """Lays rows out for one forward pass."""
    positions = [np.arange(row.start, row.end) for row in rows]
    lengths = [len(row.token_ids) for row in rows]
    ends = np.cumsum(lengths)
    sink_positions = [
        np.minimum(indices, row.sink + row.window - 1) for row, indices in zip(rows, positions, strict=True)
    ]
    slots = [geometry.slots(indices, row.sink) for row, indices in zip(rows, positions, strict=True)]
    row_lanes = np.array([row.lane for row in rows])
    return Batch(
        token_ids=torch.tensor([token for row in rows for token in row.token_ids]),
        lanes=torch.from_numpy(np.repeat(row_lanes, lengths)),
        slots=torch.from_numpy(np.concatenate(slots)),
        own_angle=rope.at(torch.from_numpy(np.concatenate(positions))),
        sink_angle=rope.at(torch.from_numpy(np.concatenate(sink_positions))),
        rows=tuple(_view(row, int(end), geometry) for row, end in zip(rows, ends, strict=True)),
        last_tokens=torch.from_numpy(ends - 1),
        row_lanes=torch.from_numpy(row_lanes),
    )


def _view(row: Row, end_in_batch: int, geometry: LaneGeometry) -> RowView:
    window = np.arange(row.first_in_window, row.end)
    keys = np.concatenate([np.arange(row.num_sinks), window])  # [keys], by history index
    queries = np.arange(row.start, row.end)[:, None]  # [queries, 1]
    visible = (keys <= queries) & ((keys < row.sink) | (keys > queries - row.window))
    return RowView(
        tokens=slice(end_in_batch - len(row.token_ids), end_in_batch),
        lane=row.lane,
        sink_slots=slice(0, row.num_sinks),
        window_slots=geometry.ring_runs(row.first_in_window, row.end),
        hidden=torch.from_numpy(~visible),
    )
