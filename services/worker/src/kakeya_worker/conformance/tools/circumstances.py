"""All that logits must not depend on, and a conversation under it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from kakeya_worker.conformance.tools.driving import Logits
from kakeya_worker.conformance.tools.transcript import SINK, WINDOW
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier


@dataclass(frozen=True)
class Circumstances:
    """One combination; `str()` of it stands in a test's id.

    Attributes:
        append_size: tokens of an append; None for all at once.
        num_rows: in every step, the conversation's own included.
        chunk: C, the most tokens a row may bring.
        num_threads: of the verifier.
    """

    append_size: int | None
    num_rows: int
    chunk: int
    num_threads: int

    def __str__(self) -> str:
        size = "all" if self.append_size is None else self.append_size
        return f"append-{size}-rows-{self.num_rows}-C-{self.chunk}-threads-{self.num_threads}"


_APPEND_SIZES, _NUM_ROWS, _CHUNKS = (1, 7, 64, None), (1, 8), (16, 32, 128)


def every(num_threads: int) -> list[Circumstances]:
    """All combinations for a number of threads."""
    return [Circumstances(*values, num_threads) for values in product(_APPEND_SIZES, _NUM_ROWS, _CHUNKS)]


def pairwise(num_threads: int) -> list[Circumstances]:
    """A dozen of them in which every pair of two values occurs."""
    return [
        Circumstances(append_size, _NUM_ROWS[(i + j) % 2], chunk, num_threads)
        for i, append_size in enumerate(_APPEND_SIZES)
        for j, chunk in enumerate(_CHUNKS)
    ]


class VerifierConversation:
    """A conversation on a verifier.

    Args:
        verifier: loaded with `num_threads`; its slab is allocated here.
    """

    def __init__(self, verifier: Verifier, circumstances: Circumstances) -> None:
        geometry = LaneGeometry(SINK, WINDOW, circumstances.chunk)
        verifier.allocate(geometry, circumstances.num_rows)
        verifier.poison()
        self._verifier = verifier
        self._append_size = circumstances.append_size
        self._random = random.Random(0)
        self._company = _Company(geometry, circumstances.num_rows - 1, verifier.facts.vocab_size, self._random)
        self._lane = Lane(geometry, circumstances.num_rows - 1, sink_window(SessionOptions(), geometry))

    def extend(self, token_ids: Sequence[int]) -> None:
        """Appends tokens, an append after the other and in each a chunk after the other."""
        chunk = self._lane.geometry.chunk
        append_size = self._append_size or len(token_ids)
        for start in range(0, len(token_ids), append_size):
            append = token_ids[start : start + append_size]
            for first in range(0, len(append), chunk):
                self._step(tuple(append[first : first + chunk]))

    def logits(self) -> Logits:
        """After the last token, asked for together with those of the company; [vocab]."""
        lanes = [self._lane, *self._company.lanes]
        self._random.shuffle(lanes)
        logits: Logits = self._verifier.logits([lane.index for lane in lanes])[lanes.index(self._lane)]
        return logits

    def _step(self, token_ids: tuple[int, ...]) -> None:
        rows = [(self._lane, self._lane.row(token_ids)), *self._company.rows()]
        self._random.shuffle(rows)
        self._verifier.forward([row for _, row in rows])
        for lane, row in rows:
            lane.commit(row)


class _Company:
    """Sessions of all shapes and lengths on the first lanes: some prefill, most generate, some end and others begin."""

    def __init__(self, geometry: LaneGeometry, num_sessions: int, vocab_size: int, source: random.Random) -> None:
        self._geometry = geometry
        self._vocab_size = vocab_size
        self._random = source
        self.lanes = [self._new_lane(index) for index in range(num_sessions)]

    def rows(self) -> list[tuple[Lane, Row]]:
        """One for each session."""
        for lane in self.lanes:
            if lane.length > 3 * self._geometry.capacity:
                self.lanes[lane.index] = self._new_lane(lane.index)
        return [(lane, lane.row(self._tokens())) for lane in self.lanes]

    def _tokens(self) -> tuple[int, ...]:
        num_tokens = self._random.choice([1] * 12 + [2, 5, 16, self._geometry.chunk])
        return tuple(self._random.randrange(self._vocab_size) for _ in range(num_tokens))

    def _new_lane(self, index: int) -> Lane:
        sink = self._random.randrange(self._geometry.capacity)
        options = SessionOptions(sink, window=self._random.randint(1, self._geometry.capacity - sink))
        return Lane(self._geometry, index, sink_window(options, self._geometry))
