"""The law's tests can fail: each mutation of the engine turns the same measurement red."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kakeya_worker.engine.lane import Integers, Lane, LaneGeometry, Row
from kakeya_worker.torch_backend import batch, verifier
from kakeya_worker.torch_backend.rope import Rope, Rotation
from tests.conformance.conftest import SINK, WINDOW
from tests.conformance.driving import TOLERANCE, engine_error
from tests.conformance.reference import Array

Patch = pytest.MonkeyPatch


def _window_plus_one(patch: Patch) -> None:
    row = Lane.row
    patch.setattr(Lane, "row", lambda lane, tokens: replace(row(lane, tokens), window=lane.window + 1))


def _sink_minus_one(patch: Patch) -> None:
    row = Lane.row
    patch.setattr(Lane, "row", lambda lane, tokens: replace(row(lane, tokens), sink=lane.sink - 1))


def _sink_angle_plus_one(patch: Patch) -> None:
    def assemble(rows: Sequence[Row], geometry: LaneGeometry, rope: Rope) -> batch.Batch:
        positions = [min(p, row.sink + row.window - 1) + 1 for row in rows for p in range(row.start, row.end)]
        return replace(batch.assemble(rows, geometry, rope), sink_angle=rope.at(torch.tensor(positions)))

    patch.setattr(verifier, "assemble", assemble)


def _sink_angle_unbounded(patch: Patch) -> None:
    def assemble(rows: Sequence[Row], geometry: LaneGeometry, rope: Rope) -> batch.Batch:
        assembled = batch.assemble(rows, geometry, rope)
        return replace(assembled, sink_angle=assembled.own_angle)

    patch.setattr(verifier, "assemble", assemble)


def _window_angle_plus_one_for_keys(patch: Patch) -> None:
    """The window's keys one position off against its queries: as if keys were rotated at j + 1."""
    at = Rope.at
    calls = itertools.count()

    def shifted(rope: Rope, positions: torch.Tensor) -> Rotation:
        return at(rope, positions + (next(calls) % 2 == 0))  # own_angle is asked for first

    patch.setattr(Rope, "at", shifted)


def _wrong_ring_slot(patch: Patch) -> None:
    def slots(geometry: LaneGeometry, indices: Integers, sink: int) -> Integers:
        return np.where(indices < sink, indices, geometry.sink + (indices + 1) % geometry.num_ring_slots)

    patch.setattr(LaneGeometry, "slots", slots)


def _ring_without_slack(patch: Patch) -> None:
    patch.setattr(LaneGeometry, "num_ring_slots", property(lambda geometry: geometry.window))


def _missing_commit(patch: Patch) -> None:
    commit = Lane.commit
    calls = itertools.count()

    def sometimes(lane: Lane, row: Row) -> None:
        if next(calls) != 20:
            commit(lane, row)

    patch.setattr(Lane, "commit", sometimes)


MUTATIONS: list[Callable[[Patch], None]] = [
    _window_plus_one,
    _sink_minus_one,
    _sink_angle_plus_one,
    _sink_angle_unbounded,
    _window_angle_plus_one_for_keys,
    _wrong_ring_slot,
    _ring_without_slack,
    _missing_commit,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__.strip("_"))
def test_every_mutation_shows(
    checkpoint: Path, history: list[int], reference_logits: Array, monkeypatch: Patch, mutate: Callable[[Patch], None]
) -> None:
    mutate(monkeypatch)
    error = engine_error(checkpoint, history, reference_logits, append_size=7, sink=SINK, window=WINDOW)
    assert error > 10 * TOLERANCE


def test_unmutated_it_is_green(checkpoint: Path, history: list[int], reference_logits: Array) -> None:
    error = engine_error(checkpoint, history, reference_logits, append_size=7, sink=SINK, window=WINDOW)
    assert error <= TOLERANCE
