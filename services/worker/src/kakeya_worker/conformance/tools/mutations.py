"""Ways to break the law that need no knowledge of a backend: lies about a row, which the verifier believes."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from kakeya_worker.engine.seams.geometry import Integers
from kakeya_worker.engine.seams.retention import SinkWindow
from kakeya_worker.engine.seams.row import Row

_LOST_ROW = 98  # history index; a multiple of every size that rows have here
_COLLISION = 7  # of so many tokens one takes the slot of its predecessor

AnySinkWindow = TypeVar("AnySinkWindow", bound=SinkWindow)


class _SinkAnglePlusOne(SinkWindow):
    def sink_positions(self, queries: Integers) -> Integers:
        return super().sink_positions(queries) + 1


class _SinkAngleUnbounded(SinkWindow):
    def sink_positions(self, queries: Integers) -> Integers:
        return queries


class _WrongSlot(SinkWindow):
    def slots(self, indices: Integers) -> Integers:
        return super().slots(indices - (indices % _COLLISION == _COLLISION - 1))


def _window_plus_one(row: Row) -> Row:
    retention = _truth(row)
    return replace(row, retention=replace(retention, window=retention.window + 1))


def _sink_minus_one(row: Row) -> Row:
    retention = _truth(row)
    return replace(row, retention=replace(retention, sink=retention.sink - 1))


def _ring_without_slack(row: Row) -> Row:
    retention = _truth(row)
    return replace(row, retention=replace(retention, num_ring_slots=retention.window))


def _missing_commit(row: Row) -> Row:
    """One row was run and never counted, so that all later ones stand in its place."""
    return replace(row, start=row.start - len(row.token_ids)) if row.start > _LOST_ROW else row


def _believing(kind: type[AnySinkWindow]) -> Callable[[Row], Row]:
    def told(row: Row) -> Row:
        truth = _truth(row)
        return replace(row, retention=kind(truth.sink, truth.window, truth.num_ring_slots))

    return told


def _truth(row: Row) -> SinkWindow:
    if not isinstance(row.retention, SinkWindow):
        raise TypeError(f"lies are about a SinkWindow, not {row.retention}")
    return row.retention


MUTATIONS: dict[str, Callable[[Row], Row]] = {
    "window-plus-one": _window_plus_one,
    "sink-minus-one": _sink_minus_one,
    "sink-angle-plus-one": _believing(_SinkAnglePlusOne),
    "sink-angle-unbounded": _believing(_SinkAngleUnbounded),
    "wrong-slot": _believing(_WrongSlot),
    "ring-without-slack": _ring_without_slack,
    "missing-commit": _missing_commit,
}
