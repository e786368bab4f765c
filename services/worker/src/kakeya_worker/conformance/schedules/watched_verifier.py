"""A verifier whose logits can be looked at from outside the engine's thread."""

from collections.abc import Sequence

from kakeya_worker.conformance.tools.driving import Logits
from kakeya_worker.engine.seams.geometry import Integers
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import LaneContents, Verifier


class WatchedVerifier:
    """Passes everything on, and keeps each lane's logits after its last row.

    Attributes:
        last_logits: by lane, each [vocab].
    """

    def __init__(self, verifier: Verifier) -> None:
        self.facts = verifier.facts
        self.allocate, self.logits, self.poison = verifier.allocate, verifier.logits, verifier.poison
        self.read_lane, self.populate_lane = verifier.read_lane, verifier.populate_lane
        self.scored_logits = verifier.scored_logits
        self.last_logits: dict[int, Logits] = {}
        self._verifier = verifier

    def copy_lane(self, source: int, target: int, num_slots: int) -> None:
        self._verifier.copy_lane(source, target, num_slots)
        if num_slots:
            self.last_logits[target] = self._verifier.logits([target])[0].copy()

    def write_lane(self, lane: int, slots: Integers, contents: LaneContents) -> None:
        self._verifier.write_lane(lane, slots, contents)
        if slots.size:
            self.last_logits[lane] = self._verifier.logits([lane])[0].copy()

    def shorten(self, lane: int, num_tokens: int) -> None:
        self._verifier.shorten(lane, num_tokens)
        self.last_logits[lane] = self._verifier.logits([lane])[0].copy()

    def forward(self, rows: Sequence[Row]) -> None:
        self._verifier.forward(rows)
        lanes = [row.lane for row in rows]
        self.last_logits.update(zip(lanes, self._verifier.logits(lanes).copy(), strict=True))
