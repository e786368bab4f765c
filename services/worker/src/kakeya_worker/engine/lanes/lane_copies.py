"""Lanes that become others by a copy or a forward pass: forks of other lanes, and lanes that go back.

All of it runs on the engine's thread, between two steps.
"""

import numpy as np

from kakeya_shared.errors.tree import BoundaryNotReachable, OperationRunning
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.lanes.lane_state import ForkSource, LaneState
from kakeya_worker.engine.lanes.lane_table import LaneTable, Occupant
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.engine.speculation.proposers import Proposers


class LaneCopies:
    """Copies what lanes hold, together with their integers."""

    def __init__(self, lanes: LaneTable, verifier: Verifier, proposers: Proposers) -> None:
        self._lanes = lanes
        self._proposers = proposers
        self._verifier = verifier

    def fork(self, session_id: str, epoch: int, source: ForkSource, tenant: str) -> Occupant:
        """Takes a lane that begins as a copy of another; repeated under the same epoch it changes nothing.

        Raises:
            SessionNotFound, StaleEpoch: of the source.
            OperationRunning, HistoryLengthMismatch: the source is not what the caller believes.
            NoCapacity
        """
        if session_id in self._lanes:
            return self._lanes.find(session_id, epoch)
        found = self._lanes.find(source.session_id, source.epoch)
        lane = _at_rest(found, source.history_length, source.history_digest)
        occupant = self._lanes.fork(session_id, epoch, lane, tenant, source.speculation)
        try:
            self._verifier.copy_lane(lane.index, occupant.lane.index, lane.num_used_slots)
        except Exception:  # of a backend: the caller is told, and the lane is not lost
            self._lanes.free(occupant)
            raise
        return occupant

    def rewind(
        self, occupant: Occupant, history_length: int, history_digest: int | None, target_length: int
    ) -> LaneState:
        """Takes the last tokens of a history back.

        The lane keeps no final hidden vector but the last, so the new last token is forwarded once more: to where its
        K and V are already, in exact mode the same.

        Raises:
            BoundaryNotReachable: the target is beyond the end, or something was forgotten since.
            OperationRunning, HistoryLengthMismatch
            Postponed: the lane is being copied.
        """
        occupant.wait_for_readings()
        lane = _at_rest(occupant, history_length, history_digest)
        if target_length > lane.length or (lane.num_evicted and target_length < lane.length):
            raise BoundaryNotReachable(
                f"the lane cannot go back to {target_length} tokens", metadata={"reachable": str(lane.length)}
            )
        if target_length < lane.length:
            try:
                self._go_back(lane, target_length)
                lane.num_rewinds += 1
            except Exception:  # of a backend: what the lane holds now is not known
                self._lanes.free(occupant)
                raise
            self._lanes.publish(occupant)
            if occupant.drafter is not None:
                self._proposers.restart(occupant.drafter, lane.held_token_ids)
        occupant.generated.forget(target_length)
        return self._lanes.state(occupant)

    def _go_back(self, lane: Lane, length: int) -> None:
        if length == 0:
            lane.rewind(0)
            return
        last = length - 1
        token_id = int(lane.slot_token_ids[lane.retention.slots(np.array(last))])
        lane.rewind(last)
        row = lane.row((token_id,))
        self._verifier.forward([row])
        lane.commit(row)


def _at_rest(occupant: Occupant, history_length: int, history_digest: int | None) -> Lane:
    """Raises OperationRunning or HistoryLengthMismatch."""
    if occupant.operation is not None:
        raise OperationRunning("an operation is running on the session")
    occupant.lane.check_history(history_length, history_digest)
    return occupant.lane
