"""A step's rows as arrays: where each token is written, what it sees and how it is rotated."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.seams.geometry import Integers
from kakeya_worker.engine.seams.raw_lane import slot_runs
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.mlx_backend.rotation import Rotation
from kakeya_worker.models.angles import cos_sin


@dataclass(frozen=True)
class RowInBatch:
    """One row's share of a batch.

    Attributes:
        tokens: its tokens among those of the batch.
        written: runs of its tokens among those of the batch, and the slots that their K and V are written to.
        sinks: slots of the sinks, one run or none.
        recent: slots of the other keys in the order of the history, at most two runs.
        visible: which of the keys each query sees, [queries, keys]; None where each sees all.
    """

    tokens: slice
    written: tuple[tuple[slice, slice], ...]
    sinks: tuple[slice, ...]
    recent: tuple[slice, ...]
    visible: mx.array | None


@dataclass(frozen=True)
class Batch:
    """All rows of a step, their tokens one after the other.

    Attributes:
        token_ids: [tokens].
        own_angle: rotates keys, and queries against recent keys.
        sink_angle: rotates queries against the sinks.
        rows: one a row.
        kept_tokens: whose final hidden vectors are wanted: each row's last token, of scored rows all; [kept].
        kept: each row's share of them.
    """

    token_ids: mx.array
    own_angle: Rotation
    sink_angle: Rotation
    rows: tuple[RowInBatch, ...]
    kept_tokens: mx.array
    kept: tuple[slice, ...]


def assemble(rows: Sequence[Row], frequencies: NDArray[np.float64]) -> Batch:
    """Lays rows out for one forward pass.

    Args:
        frequencies: of RoPE, in turns a token; [head_dim / 2].
    """
    lengths = [len(row.token_ids) for row in rows]
    ends = np.cumsum(lengths)
    kept_ends = np.cumsum([row.num_kept for row in rows])
    kept_tokens = [np.arange(end - row.num_kept, end) for row, end in zip(rows, ends, strict=True)]
    return Batch(
        token_ids=mx.array([token for row in rows for token in row.token_ids]),
        own_angle=rotation(np.concatenate([row.positions for row in rows]), frequencies),
        sink_angle=rotation(np.concatenate([row.sink_positions for row in rows]), frequencies),
        rows=tuple(
            _row_in_batch(row, slice(int(end) - length, int(end)))
            for row, length, end in zip(rows, lengths, ends, strict=True)
        ),
        kept_tokens=mx.array(np.concatenate(kept_tokens)),
        kept=tuple(slice(int(end) - row.num_kept, int(end)) for row, end in zip(rows, kept_ends, strict=True)),
    )


def _row_in_batch(row: Row, tokens: slice) -> RowInBatch:
    sinks, recent = (np.arange(keys.start, keys.stop) for keys in (row.sinks, row.recent))
    visible = row.visible
    return RowInBatch(
        tokens,
        tuple((slice(tokens.start + run.start, tokens.start + run.stop), slots) for run, slots in slot_runs(row.slots)),
        _slots(row, sinks),
        _slots(row, recent),
        None if visible.all() else mx.array(visible),
    )


def _slots(row: Row, keys: Integers) -> tuple[slice, ...]:
    """Of keys by history index, as runs in their order."""
    return tuple(slots for _, slots in slot_runs(row.retention.slots(keys)))


def rotation(positions: Integers, frequencies: NDArray[np.float64]) -> Rotation:
    """Of tokens at some positions [tokens]."""
    cos, sin = cos_sin(positions, frequencies)
    return Rotation(mx.array(cos[:, None]), mx.array(sin[:, None]))
