"""Snapshots of lanes: taken and restored beside the engine's thread, so that steps of other lanes go on.

The caller does the copying, which may take as long as several steps; commands see to it that nothing else writes to
the lane meanwhile.
"""

from collections.abc import Callable, Sequence

from kakeya_shared.errors.tree import InvalidField, SessionNotFound
from kakeya_worker.engine.command_queue import CommandQueue
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.lanes.lane_state import OpenLane
from kakeya_worker.engine.lanes.lane_table import LaneTable, Occupant
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.engine.seams.verifier import Memory, Verifier
from kakeya_worker.engine.snapshots import snapshot
from kakeya_worker.engine.snapshots.snapshot import Snapshot, TakenSnapshot


class LaneSnapshots:
    """Takes and restores them. Its methods block, until the engine's thread has had time for a command or two.

    Args:
        prepare_opening: called on the engine's thread before a session takes a lane, with its id and epoch.
    """

    def __init__(
        self,
        commands: CommandQueue,
        lanes: LaneTable,
        verifier: Verifier,
        prepare_opening: Callable[[str, int], None],
    ) -> None:
        self._commands = commands
        self._lanes = lanes
        self._verifier = verifier
        self._prepare_opening = prepare_opening

    def take(self, session_id: str, epoch: int, start: int, memory: Memory | None) -> TakenSnapshot:
        """See `Engine.take_snapshot`."""
        found = self._commands.call(lambda: self._begin(session_id, epoch, start, memory), is_long=True).result()
        if isinstance(found, TakenSnapshot):
            return found
        try:
            taken = snapshot.take(found.lane, self._verifier, start, memory)
        finally:
            is_still_there = self._commands.call(lambda: self._end(found)).result()
        if not is_still_there:
            raise SessionNotFound("the session left its lane while that was copied")
        return taken

    def restore(
        self,
        session_id: str,
        epoch: int,
        snapshots: Sequence[Snapshot],
        tenant: str,
        *,
        inexact: bool,
        speculation: str = "",
    ) -> OpenLane:
        """See `Engine.restore`."""
        lane = self._commands.call(lambda: self._reserve(session_id, epoch, snapshots[-1], speculation)).result()
        try:
            if lane is not None:
                snapshot.restore(snapshots, lane, self._verifier, inexact=inexact)
        except BaseException:
            self._commands.call(lambda: self._give_back(lane)).result()
            raise
        return self._commands.call(lambda: self._occupy(session_id, epoch, tenant, lane)).result()

    # The rest runs on the engine's thread.

    def _begin(self, session_id: str, epoch: int, start: int, memory: Memory | None) -> TakenSnapshot | Occupant:
        """All of it where an operation runs, which will not wait; else who has the lane, which is his to copy."""
        occupant = self._lanes.find(session_id, epoch)
        if start > occupant.lane.length:
            raise InvalidField(f"start: the history has {occupant.lane.length} tokens", metadata={"field": "start"})
        if occupant.operation is not None:
            return snapshot.take(occupant.lane, self._verifier, start, memory)
        occupant.num_readings += 1
        return occupant

    def _end(self, occupant: Occupant) -> bool:
        """Lets go on what waited; whether the lane was the session's all the time."""
        occupant.num_readings -= 1
        waiting, occupant.waiting = occupant.waiting, []
        for command in waiting:  # while another one copies the lane, they wait again
            self._commands.run(command)
        return self._lanes.holds(occupant)

    def _reserve(self, session_id: str, epoch: int, last: Snapshot, speculation: str) -> Lane | None:
        """None: the session has its lane already."""
        self._prepare_opening(session_id, epoch)
        if session_id in self._lanes:
            self._lanes.find(session_id, epoch)
            return None
        return self._lanes.reserve(
            SessionOptions(last.sink, last.window, refuses_overflow=last.refuses_overflow, speculation=speculation)
        )

    def _occupy(self, session_id: str, epoch: int, tenant: str, lane: Lane | None) -> OpenLane:
        try:
            self._prepare_opening(session_id, epoch)
            if lane is not None and session_id not in self._lanes:
                occupant, lane = self._lanes.occupy(session_id, epoch, tenant, lane), None
            else:
                occupant = self._lanes.find(session_id, epoch)
        finally:
            self._give_back(lane)
        return self._lanes.opened(occupant)

    def _give_back(self, lane: Lane | None) -> None:
        if lane is not None:
            self._lanes.give_back(lane)
