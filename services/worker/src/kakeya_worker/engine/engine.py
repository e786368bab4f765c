"""The engine: one thread owns the slab and steps it; everybody else hands it commands and holds futures."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import structlog

from kakeya_shared.errors.tree import SessionClosed
from kakeya_worker.engine.command_queue import CommandQueue
from kakeya_worker.engine.costs.step_fitting import fit_costs
from kakeya_worker.engine.ending import Ending, shutting_down
from kakeya_worker.engine.gauges import SlabNow
from kakeya_worker.engine.lanes.lane_ahead import LaneAhead
from kakeya_worker.engine.lanes.lane_copies import LaneCopies
from kakeya_worker.engine.lanes.lane_state import ForkSource, LaneState, OpenLane, Stopped
from kakeya_worker.engine.lanes.lane_table import LaneTable, Occupant
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import RetentionPolicy, SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import Memory, Verifier
from kakeya_worker.engine.snapshots.lane_snapshots import LaneSnapshots
from kakeya_worker.engine.snapshots.snapshot import Snapshot, TakenSnapshot
from kakeya_worker.engine.speculation.proposers import Proposers
from kakeya_worker.engine.steps.running_operations import RunningOperations
from kakeya_worker.engine.steps.scheduler import Scheduler, StepBudget
from kakeya_worker.metrics import WorkerMetrics, no_metrics

_log = structlog.get_logger()
_PAUSE_CHECK_SECONDS = 1.0
_AHEAD_SECONDS = 5.0  # for the pages of one lane
_COPY_SECONDS = 0.01  # between two steps: a fork copies a lane, and many may come at once


class Engine:
    """Runs sessions on a verifier. Methods may be called from any thread.

    Args:
        verifier: a loaded model; its slab is allocated here.
        geometry: of every lane.
        num_lanes: in the slab.
        step_tokens: the most tokens in one forward pass.
        retention: what sessions keep.
        step_seconds: of a step with prefills and generating sessions; see `StepBudget`.
        proposers: of its sessions; None: nothing drafts.

    Attributes:
        lanes: what every lane holds; its `reports` and `totals` may be read at any time.
        proposers: what drafts.
        crashed: resolves with the exception if the engine's thread dies, which it never should.
    """

    def __init__(
        self,
        verifier: Verifier,
        geometry: LaneGeometry,
        num_lanes: int,
        step_tokens: int,
        retention: RetentionPolicy = sink_window,
        step_seconds: float | None = None,
        metrics: WorkerMetrics | None = None,
        proposers: Proposers | None = None,
    ) -> None:
        verifier.allocate(geometry, num_lanes)
        self.facts = verifier.facts
        self._ahead = LaneAhead(verifier)
        self.proposers = proposers or Proposers()
        self.lanes = LaneTable(geometry, num_lanes, verifier.facts, retention, self.proposers, self._ahead.prepare)
        self.crashed: Future[None] = Future()
        self._verifier = verifier
        self._copies = LaneCopies(self.lanes, verifier, self.proposers)
        self._retention = retention
        self._scheduler = Scheduler(StepBudget(step_tokens, step_seconds), geometry.chunk)
        self._operations = RunningOperations(
            self.lanes, self._scheduler, verifier, self.proposers, metrics or no_metrics()
        )
        self._commands = CommandQueue()
        self._snapshots = LaneSnapshots(self._commands, self.lanes, verifier, self._prepare_opening)
        self._ending = Ending()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def fit_step_costs(self) -> None:
        """Measures what steps take here, so that prefills and drafts hardly delay who generates; before `start`."""
        lanes = self.lanes
        if lanes.num_lanes > 1 or self.proposers.may_draft:  # else nobody waits for prefills or drafts
            fit_costs(self._scheduler.measures, self._verifier, lanes.geometry, self._retention, lanes.num_lanes)
        self.proposers.fit_costs()

    @property
    def prefill_tokens_per_second(self) -> float:
        """Of a session alone whose lane is full, as measured; 0: not known."""
        geometry = self.lanes.geometry
        seconds = self._scheduler.measures.costs.seconds(geometry.chunk, geometry.chunk * geometry.capacity)
        return geometry.chunk / seconds if seconds else 0.0

    def start(self) -> None:
        self.lanes.prepare_next()
        self._thread.start()

    def shut_down(self, grace_seconds: float = 0.0, *, until_empty: bool = False) -> None:
        """Takes no new sessions and operations, lets running ones go on for a while, then ends the thread.

        What still runs then, and whatever is asked later, fails with Draining. Until then sessions can be written,
        stopped and closed. With `until_empty` routers take all of them away, and what runs ends at half of the grace.
        """
        self._commands.put(lambda: self._ending.begin(grace_seconds, until_empty=until_empty))
        self._thread.join()
        self.proposers.close()
        self._ahead.close(_AHEAD_SECONDS)

    def abandon_idle(self) -> None:
        """Nobody will take idle sessions away any more: a `shut_down` goes on waiting for running operations only."""
        self._commands.put(self._ending.abandon_idle)

    def open(self, session_id: str, epoch: int, options: SessionOptions, tenant: str = "") -> "Future[OpenLane]":
        """Takes a lane; fails with InvalidField, NoCapacity, StaleEpoch or Draining."""
        return self._commands.call(lambda: self._open(session_id, epoch, options, tenant))

    def fork(self, session_id: str, epoch: int, source: ForkSource, tenant: str = "") -> "Future[OpenLane]":
        """Takes a lane that begins as a copy of another, with its retention.

        Fails with SessionNotFound or StaleEpoch (the source's), OperationRunning, HistoryLengthMismatch, NoCapacity,
        Draining. Stands back for commands that take no time, and does not begin once its future is cancelled.
        """
        return self._commands.call(lambda: self._fork(session_id, epoch, source, tenant), is_long=True)

    def restore(
        self,
        session_id: str,
        epoch: int,
        snapshots: Sequence[Snapshot],
        tenant: str = "",
        *,
        inexact: bool = False,
        speculation: str = "",
    ) -> OpenLane:
        """Takes a lane that begins with what snapshots hold; repeated under the same epoch it changes nothing.

        Blocks: the caller's thread copies, while others' steps go on.

        Args:
            snapshots: a whole one, and all since. They are read while they are copied.
            inexact: snapshots of another fingerprint of the model will do.
            speculation: see `SessionOptions`.

        Raises:
            SnapshotRefused: see `kakeya_worker.engine.snapshots.snapshot.restore`.
            InvalidField: the lane cannot hold what the session keeps.
            NoCapacity, StaleEpoch, Draining, and what reading a snapshot raises
        """
        return self._snapshots.restore(session_id, epoch, snapshots, tenant, inexact=inexact, speculation=speculation)

    def take_snapshot(self, session_id: str, epoch: int, start: int = 0, memory: Memory | None = None) -> TakenSnapshot:
        """What a session keeps from a history index on.

        Blocks: the caller's thread copies, while others' steps go on, and what would write to the lane waits. Where an
        operation runs on it already, the engine's thread copies between two steps.

        Args:
            memory: see `kakeya_worker.engine.snapshots.snapshot.memory_for`.

        Raises:
            SessionNotFound, StaleEpoch
            InvalidField: the history ends before `start`.
        """
        return self._snapshots.take(session_id, epoch, start, memory)

    def rewind(
        self,
        session_id: str,
        epoch: int,
        history_length: int,
        target_length: int,
        operation_number: int = 0,
        *,
        history_digest: int | None = None,
    ) -> "Future[LaneState]":
        """Takes the last tokens of a history back.

        Fails with BoundaryNotReachable, OperationRunning, HistoryLengthMismatch, SessionNotFound or StaleEpoch.
        """
        return self._commands.call(
            lambda: self._copies.rewind(
                self.lanes.find_for(session_id, epoch, operation_number), history_length, history_digest, target_length
            )
        )

    def submit(self, operation: Append | Generate) -> None:
        """Runs an operation; its future fails with the error tree of kakeya_shared."""
        operation.future.set_running_or_notify_cancel()
        self._commands.put(lambda: self._operations.begin(operation, self._ending.refuse_if_begun))

    def cancel(self, operation: Append | Generate) -> None:
        """Stops an operation within a step; without effect on one that has ended."""
        operation.is_cancelled = True
        self._commands.wake()

    def acknowledge(self, generate: Generate, num_tokens: int, journaled_length: int = 0) -> None:
        """Counts the first `num_tokens` as read, never fewer than before; a paused row goes on.

        Args:
            journaled_length: history length up to which nobody will ask for generated tokens any more.
        """
        if generate.acknowledge(num_tokens, journaled_length):
            self._commands.wake()

    def stop_operation(
        self, session_id: str, epoch: int, journaled_length: int | None = None, operation_number: int = 0
    ) -> "Future[Stopped]":
        """Ends what runs on the session, and tells what is committed, and what of it was generated after a length.

        Args:
            operation_number: of who asks; see `Operation.number`.
        """
        return self._commands.call(
            lambda: self._operations.stop(self.lanes.find_for(session_id, epoch, operation_number), journaled_length)
        )

    def close(self, session_id: str, epoch: int) -> "Future[int]":
        """Frees the lane and returns the final history length; a running operation fails with SessionClosed."""
        return self._commands.call(lambda: self._close(self.lanes.find(session_id, epoch)))

    def reset(self) -> "Future[None]":
        """Frees every lane: their leases are lost."""
        return self._commands.call(self._reset)

    def slab_now(self) -> "Future[SlabNow]":
        """What every lane holds, and how many operations run, between two steps."""
        lanes, scheduler = self.lanes, self._scheduler
        return self._commands.call(
            lambda: SlabNow(lanes.live_bytes(), lanes.lane_bytes, lanes.num_lanes, *scheduler.numbers)
        )

    # The rest runs on the engine's thread.

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._take_commands()
                self._operations.end_cancelled()
                if self._ending.hands_over:
                    self._operations.end_all(shutting_down())
                if self._scheduler.has_work:
                    self._operations.step()
            self._end()
        except BaseException as error:
            _log.critical("the engine's thread died", exc_info=error)
            self._ending.is_now()
            try:
                self._end()  # nobody may wait for a thread that is gone
            finally:
                self.crashed.set_exception(error)

    def _take_commands(self) -> None:
        """Runs the commands that wait; with nothing to step, sleeps until one comes."""
        if not self._scheduler.has_work:
            self._commands.run_next(self._sleep_seconds())
        self._commands.run_waiting(_COPY_SECONDS)

    def _sleep_seconds(self) -> float | None:
        """For how long nothing happens by itself; None: for ever."""
        seconds = [_PAUSE_CHECK_SECONDS] if any(self._scheduler.operations) else []
        if (seconds_left := self._ending.seconds_left) is not None:
            seconds.append(seconds_left)
        return min(seconds, default=None)

    def _open(self, session_id: str, epoch: int, options: SessionOptions, tenant: str) -> OpenLane:
        self._prepare_opening(session_id, epoch)
        return self.lanes.opened(self.lanes.open(session_id, epoch, options, tenant))

    def _fork(self, session_id: str, epoch: int, source: ForkSource, tenant: str) -> OpenLane:
        self._prepare_opening(session_id, epoch)
        return self.lanes.opened(self._copies.fork(session_id, epoch, source, tenant))

    def _prepare_opening(self, session_id: str, epoch: int) -> None:
        """A newer lease on the session fences an older one that is left here; raises Draining."""
        self._ending.refuse_if_begun()
        if session_id in self.lanes:
            occupant = self.lanes.occupant(session_id)
            if occupant.epoch < epoch:
                self._close(occupant)

    def _close(self, occupant: Occupant) -> int:
        self._operations.end(occupant, SessionClosed("the session was closed"))
        self.lanes.free(occupant)
        return occupant.lane.length

    def _reset(self) -> None:
        for occupant in self.lanes.occupants():
            self._close(occupant)

    def _is_over(self) -> bool:
        """Asked before each step: what is left is looked at only once the end was asked for."""
        ending = self._ending
        return ending.has_begun and ending.is_over(self.lanes.occupants(), tuple(self._scheduler.operations))

    def _end(self) -> None:
        self._operations.end_all(shutting_down())
        self._commands.close()
