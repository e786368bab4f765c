"""A verifier's lanes, stepped as the engine steps them: logits, the choice on the host, a forward pass."""

from collections.abc import Sequence

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier


class Lanes:
    """Lanes of a slab that is allocated, empty at first.

    Attributes:
        all: the lanes.
    """

    def __init__(self, verifier: Verifier, geometry: LaneGeometry, num_lanes: int) -> None:
        self._verifier = verifier
        self.all = [Lane(geometry, index, sink_window(SessionOptions(), geometry)) for index in range(num_lanes)]

    def rows(self, tokens: Sequence[Sequence[int]]) -> list[Row]:
        """What a step brings to the first lanes, to each its tokens."""
        return [lane.row(tuple(brought)) for lane, brought in zip(self.all, tokens, strict=False)]

    def commit(self, rows: Sequence[Row]) -> None:
        """After their forward pass."""
        for lane, row in zip(self.all, rows, strict=False):
            lane.commit(row)

    def forward(self, tokens: Sequence[Sequence[int]]) -> None:
        """A whole step."""
        rows = self.rows(tokens)
        self._verifier.forward(rows)
        self.commit(rows)
