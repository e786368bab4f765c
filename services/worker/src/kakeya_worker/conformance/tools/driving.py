"""Drives a verifier by rows, as the engine does but with every choice in the test's hands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier

Logits = NDArray[np.float32]


def _truly(row: Row) -> Row:
    return row


@dataclass
class Session:
    """One lane of a verifier.

    Attributes:
        told: what the verifier is told of each row; mutations lie.
    """

    verifier: Verifier
    lane: Lane
    told: Callable[[Row], Row] = _truly

    def append(self, token_ids: Sequence[int]) -> Logits:
        """Appends in rows of at most C tokens, each alone in its step; the logits after the last [vocab]."""
        chunk = self.lane.geometry.chunk
        for start in range(0, len(token_ids), chunk):
            self.step(token_ids[start : start + chunk])
        return self.logits()

    def step(self, token_ids: Sequence[int], company: Sequence["Session"] = ()) -> None:
        """Appends tokens as one row; each of the company appends the last of them in the same step."""
        rows = [(self, self.lane.row(tuple(token_ids)))]
        rows += [(other, other.lane.row(tuple(token_ids[-1:]))) for other in company]
        self.verifier.forward([session.told(row) for session, row in rows])
        for session, row in rows:
            session.lane.commit(row)

    def fork(self, index: int) -> "Session":
        """A session with the same history in another lane."""
        self.verifier.copy_lane(self.lane.index, index, self.lane.num_used_slots)
        return Session(self.verifier, self.lane.fork(index), self.told)

    def logits(self) -> Logits:
        logits: Logits = self.verifier.logits([self.lane.index])[0]
        return logits


def open_session(
    verifier: Verifier,
    geometry: LaneGeometry,
    index: int = 0,
    options: SessionOptions | None = None,
    told: Callable[[Row], Row] = _truly,
) -> Session:
    """A session in an empty lane."""
    return Session(verifier, Lane(geometry, index, sink_window(options or SessionOptions(), geometry)), told)
