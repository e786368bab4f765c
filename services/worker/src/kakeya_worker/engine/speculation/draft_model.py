"""The proposer `draft-model`: a second, smaller model of the same tokens says what may come next.

It has a slab of its own with a lane for each lane of the worker. The sessions of a step are drafted for together: each
of its forward passes brings every session one draft. What was drafted wrongly needs no undo, as in the worker's own
lanes. A lane that is far behind, since much was appended or nothing was drafted for long, is brought nearer in the time
that its drafts would have taken, and nothing is drafted for it until it is there. So nobody waits longer for that.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.costs.step_costs import MeasuredStep, StepCosts, StepMeasures
from kakeya_worker.engine.costs.step_fitting import fit_costs
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import sink_window
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import ModelRefused, Verifier
from kakeya_worker.engine.speculation.choosing import GREEDY, Choosing
from kakeya_worker.engine.speculation.draft_lane import DraftLane

MAX_TOKENS = 15
_DRAFTS_A_CATCHING_UP = 64  # that are reckoned to pay for it
# For which a step waits for drafts: a machine may stand still for a moment, and what is late is of no use.
_PATIENT_SECONDS = 1.0
_PATIENT_TIMES = 8.0  # what they are expected to take, where that is more


class Asked(NamedTuple):
    """Up to `num_tokens` drafts, one at least, behind what the lane was told and a token."""

    lane: DraftLane
    token_id: int
    num_tokens: int
    choosing: Choosing = GREEDY


class DraftModel:
    """Used by one thread at a time, but for what it costs.

    Args:
        verifier: the second model.
        geometry: of the worker's lanes. Where the model has fewer positions its window is the smaller for it.
        num_lanes: of the worker.
        vocab_size: of the worker's model: this one's may have other rows at its end, which no token has.

    Raises:
        ModelRefused: the sinks leave it no window.
    """

    def __init__(self, verifier: Verifier, geometry: LaneGeometry, num_lanes: int, vocab_size: int) -> None:
        most = verifier.facts.max_positions
        window = min(geometry.window, most - geometry.sink)
        if window < 1:
            raise ModelRefused(f"the draft model has {most} positions: {geometry.sink} sinks leave it no window")
        self.geometry = LaneGeometry(geometry.sink, window, geometry.chunk)
        self._verifier = verifier
        self._num_lanes = num_lanes
        self._vocab_size = vocab_size
        self._measures = StepMeasures()
        verifier.allocate(self.geometry, num_lanes)

    @property
    def lane_bytes(self) -> int:
        """What it holds of a session."""
        slot_bytes = self.geometry.num_slots * self._verifier.facts.kv_bytes_per_token
        return slot_bytes + DraftLane(0, self.geometry).id_bytes

    def session(self, lane: int) -> "ModelProposer":
        """Drafts for the session on a lane; who drafted for an earlier one there is not used any more."""
        return ModelProposer(self, DraftLane(lane, self.geometry))

    def known(self, token_id: int) -> int:
        """A token that it can be told; another one where its vocabulary ends before."""
        return min(token_id, self._verifier.facts.vocab_size - 1)

    def fit_costs(self) -> None:
        """Measures what its forward passes take here, before anything is drafted."""
        fit_costs(self._measures, self._verifier, self.geometry, sink_window, self._num_lanes)

    @property
    def costs(self) -> StepCosts:
        """Of its forward passes, with the choice of a draft behind each."""
        return self._measures.costs

    def patient_seconds(self, nums_tokens: Sequence[int]) -> float:
        """How long so many drafts, of several sessions, may take."""
        costs = self.costs
        expected = max(nums_tokens) * costs.step_seconds + sum(nums_tokens) * self._token_seconds(costs)
        return max(_PATIENT_SECONDS, _PATIENT_TIMES * expected)

    def draft(self, asked: Sequence[Asked]) -> list[list[int]]:
        """Drafts for each; none where its lane is far behind.

        Raises:
            FloatingPointError: its logits are no numbers.
            Exception: of a backend.
        """
        works = [self._catching_up(each) if each.lane.is_far_behind else _Drafting(each) for each in asked]
        while running := [work for work in works if not work.is_done]:
            self._step(running)
        return [work.drafts for work in works]

    def _catching_up(self, asked: Asked) -> "_CatchingUp":
        """By as many tokens as take the time of the drafts."""
        costs, chunk = self.costs, self.geometry.chunk
        token_seconds = self._token_seconds(costs)
        seconds = asked.num_tokens * (costs.step_seconds + token_seconds)
        of_a_token = costs.step_seconds / chunk + token_seconds
        return _CatchingUp(asked.lane, max(1, int(seconds / of_a_token)) if of_a_token else chunk)

    def _token_seconds(self, costs: StepCosts) -> float:
        """Of one in a full lane."""
        return costs.added_seconds(self.geometry.capacity)

    def _step(self, works: "Sequence[_Drafting | _CatchingUp]") -> None:
        """A forward pass over one row of each."""
        began = time.perf_counter()
        rows = [work.next_row() for work in works]
        self._verifier.forward(rows)
        drafting = [(work, row) for work, row in zip(works, rows, strict=True) if isinstance(work, _Drafting)]
        if drafting:
            logits = self._fitted(self._verifier.logits([row.lane for _, row in drafting]))  # [drafting, vocab]
            for (work, _), of_work in zip(drafting, logits, strict=True):
                work.choose(of_work)
            num_visible = sum(len(row.token_ids) * sum(map(len, row.retention.retained(row.end))) for row in rows)
            num_tokens = sum(len(row.token_ids) for row in rows)
            self._measures.add(MeasuredStep(num_tokens, num_visible, time.perf_counter() - began))

    def _fitted(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """With as many columns as the worker's model has tokens; [rows, its vocab] -> [rows, vocab]."""
        missing = self._vocab_size - logits.shape[1]
        if missing <= 0:
            return logits[:, : self._vocab_size]
        return np.pad(logits, ((0, 0), (0, missing)), constant_values=-np.inf)


class _Drafting:
    """What a session is drafted, token by token."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.is_done = False
        self.drafts: list[int] = []

    def next_row(self) -> Row:
        lane = self._asked.lane
        return lane.go_on(self.drafts[-1]) if self.drafts else lane.begin(self._asked.token_id)

    def choose(self, logits: NDArray[np.float32]) -> None:
        """The next draft, from the logits [vocab] behind the latest row."""
        choosing, drafts = self._asked.choosing, self.drafts
        drafts.append(choosing.token(logits, drafts))
        self.is_done = len(drafts) == self._asked.num_tokens or choosing.ends_with(drafts)


class _CatchingUp:
    """A lane that is far behind, and how many tokens it may come nearer."""

    def __init__(self, lane: DraftLane, num_tokens: int) -> None:
        self._lane = lane
        self._num_left = num_tokens
        self.drafts: list[int] = []  # none

    @property
    def is_done(self) -> bool:
        return self._num_left <= 0 or not self._lane.is_far_behind

    def next_row(self) -> Row:
        row = self._lane.catch_up(self._num_left)
        self._num_left -= len(row.token_ids)
        return row


class ModelProposer:
    """Of one session; see `kakeya_worker.engine.seams.proposer.Proposer`."""

    is_immediate = False

    def __init__(self, model: DraftModel, lane: DraftLane) -> None:
        self.model = model
        self.max_tokens = min(MAX_TOKENS, model.geometry.chunk - 1)
        self.memory_bytes = model.lane_bytes
        self._lane = lane

    def restart(self, token_ids: Sequence[int]) -> None:
        """Computes nothing yet."""
        self._lane.restart([self.model.known(token_id) for token_id in token_ids])

    def extend(self, token_ids: Sequence[int]) -> None:
        """Computes nothing yet."""
        self._lane.extend([self.model.known(token_id) for token_id in token_ids])

    def propose(self, token_id: int, num_tokens: int) -> Sequence[int]:
        """For this session alone, the likeliest tokens."""
        (drafts,) = self.model.draft([self.asked(token_id, num_tokens)])
        return drafts

    def asked(self, token_id: int, num_tokens: int, choosing: Choosing = GREEDY) -> Asked:
        """What the model is asked, which drafts for several sessions together."""
        return Asked(self._lane, self.model.known(token_id), min(num_tokens, self.max_tokens), choosing)

    @property
    def num_behind(self) -> int:
        """Tokens that it was told and the model has not computed."""
        return self._lane.num_behind

    def draft_seconds(self, num_sessions: int, num_behind: int) -> float:
        """Of one draft, where so many sessions are drafted for together; 0: not known.

        To catch up with what is behind is part of the price of those that follow: else a session for which drafting
        does not pay would be made to catch up for each attempt.
        """
        costs, geometry = self.model.costs, self.model.geometry
        token_seconds = costs.added_seconds(geometry.capacity)
        num_late = min(num_behind, geometry.capacity) / _DRAFTS_A_CATCHING_UP
        return costs.step_seconds / num_sessions + token_seconds * (1.0 + num_late)
