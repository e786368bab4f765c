"""Who holds which lane, and what of it the rest of the process may know at any time.

The engine's thread changes the table; other threads read what it published, without waiting for a step.
"""

import heapq
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kakeya_shared.errors.tree import NoCapacity, SessionNotFound, StaleEpoch
from kakeya_worker.engine.command_queue import Command, Postponed
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.lanes.lane_state import LaneState, OpenLane
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import Retention, RetentionPolicy, SessionOptions
from kakeya_worker.engine.seams.verifier import ModelFacts
from kakeya_worker.engine.speculation.drafter import Drafter
from kakeya_worker.engine.speculation.proposers import Proposers


@dataclass(frozen=True)
class LaneReport:
    """One session's lane, by its number, at its last change; `revision` rises with every change in the table."""

    session_id: str
    epoch: int
    state: LaneState
    revision: int
    lane: int


@dataclass(frozen=True)
class SlabTotals:
    """The slab as a whole, in bytes and lanes."""

    slab_bytes: int
    lane_bytes: int
    num_lanes: int
    num_lanes_in_use: int
    kv_live_bytes: int
    kv_bytes_per_token: int


@dataclass
class GeneratedTail:
    """The last generated tokens of a history, as far as they may still be asked for; they end where the lane does."""

    _token_ids: deque[int] = field(default_factory=deque)
    _end: int = 0

    def forget(self, length: int) -> None:
        """All of them: the history, of `length` tokens, is on record."""
        self._token_ids.clear()
        self._end = length

    def add(self, token_id: int, journaled_length: int) -> None:
        """One more; those before `journaled_length` are forgotten."""
        self._token_ids.append(token_id)
        self._end += 1
        while len(self._token_ids) > max(0, self._end - journaled_length):
            self._token_ids.popleft()

    def since(self, start: int, end: int) -> tuple[int, ...]:
        """Those of start..end-1, where `end` is the lane's; none where they are not all known."""
        num_wanted = end - start
        if not 0 < num_wanted <= len(self._token_ids):
            return ()
        return tuple(self._token_ids)[-num_wanted:]


@dataclass(eq=False)
class Occupant:
    """A session on its lane.

    Attributes:
        tenant: its owner, empty where there are none.
        drafter: of its proposer; None: nothing is drafted for it.
        operation_number: the highest that any caller has named.
        generated: what its latest Generate produced and nobody has on record.
        num_readings: copies of the lane that other threads make; nothing may be written to it meanwhile.
        waiting: commands for when they have ended, in their order.
    """

    session_id: str
    epoch: int
    tenant: str
    lane: Lane
    drafter: Drafter | None
    operation: Append | Generate | None = None
    operation_number: int = 0
    generated: GeneratedTail = field(default_factory=GeneratedTail)
    num_readings: int = 0
    waiting: list[Command] = field(default_factory=list)

    def wait_for_readings(self) -> None:
        """Raises Postponed while the lane is copied: who asks is going to write to it."""
        if self.num_readings:
            raise Postponed(self.waiting)

    def wait_for_others(self) -> None:
        """Raises Postponed while commands wait that came before."""
        if self.waiting:
            raise Postponed(self.waiting)


class LaneTable:
    """Lanes by session.

    Args:
        facts: of the model.
        retention: what sessions keep.
        proposers: what drafts for them.
        prepare: called with the index of the lane that is taken next, by `prepare_next` and whenever it is another.
    """

    def __init__(
        self,
        geometry: LaneGeometry,
        num_lanes: int,
        facts: ModelFacts,
        retention: RetentionPolicy,
        proposers: Proposers,
        prepare: Callable[[int], None],
    ) -> None:
        self._retention = retention
        self._proposers = proposers
        self._vocab_size = facts.vocab_size
        self._proposer_bytes = proposers.memory_bytes(geometry, facts.vocab_size)
        self._prepare = prepare
        self.geometry = geometry
        self.num_lanes = num_lanes
        self.kv_bytes_per_token = facts.kv_bytes_per_token
        # A heap, the lowest first: lanes that were used before have their memory, others never need any.
        self._free = list(range(num_lanes))
        self._occupants: dict[str, Occupant] = {}
        self._published: dict[str, LaneReport] = {}
        self._revision = 0
        self._lock = threading.Lock()

    def open(self, session_id: str, epoch: int, options: SessionOptions, tenant: str) -> Occupant:
        """Takes a lane; repeated under the same epoch it changes nothing.

        Raises:
            InvalidField: the lane cannot hold what is asked.
            NoCapacity: every lane is taken.
            StaleEpoch: the session is open under another epoch.
        """
        if session_id in self._occupants:
            return self.find(session_id, epoch)
        return self.occupy(session_id, epoch, tenant, self.reserve(options))

    def reserve(self, options: SessionOptions) -> Lane:
        """Takes a lane that no session has yet: for `occupy` or `give_back`; raises InvalidField or NoCapacity."""
        retention = self.retention(options)
        return Lane(self.geometry, self._take(), retention, options.refuses_overflow, speculation=options.speculation)

    def give_back(self, lane: Lane) -> None:
        """One that was reserved."""
        heapq.heappush(self._free, lane.index)

    def retention(self, options: SessionOptions) -> Retention:
        """What a session with these options keeps; raises InvalidField. Any thread may ask."""
        return self._retention(options, self.geometry)

    def fork(self, session_id: str, epoch: int, source: Lane, tenant: str, speculation: str = "") -> Occupant:
        """Takes a lane for a session that has none, with the history of another; raises NoCapacity."""
        return self.occupy(session_id, epoch, tenant, source.fork(self._take(), speculation))

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._occupants

    def holds(self, occupant: Occupant) -> bool:
        """Whether its session has not been closed since."""
        return self._occupants.get(occupant.session_id) is occupant

    def occupant(self, session_id: str) -> Occupant:
        """Of a session that is open, under whatever epoch."""
        return self._occupants[session_id]

    def _take(self) -> int:
        if not self._free:
            raise NoCapacity(f"all {self.num_lanes} lanes are in use")
        taken = heapq.heappop(self._free)
        self.prepare_next()
        return taken

    def prepare_next(self) -> None:
        """Calls `prepare`, while there is a lane to take."""
        if self._free:
            self._prepare(self._free[0])

    def occupy(self, session_id: str, epoch: int, tenant: str, lane: Lane) -> Occupant:
        """Makes a lane that was reserved that of a session which has none."""
        drafter = self._proposers.drafter(
            self.geometry, self._vocab_size, lane.held_token_ids, lane.speculation, lane.index
        )
        self._occupants[session_id] = occupant = Occupant(session_id, epoch, tenant, lane, drafter)
        self.publish(occupant)
        return occupant

    def find(self, session_id: str, epoch: int) -> Occupant:
        """Any thread may ask; only the engine's changes what it finds.

        Raises:
            SessionNotFound: no lane is open for the session.
            StaleEpoch: the lease is not the lane's.
        """
        occupant = self._occupants.get(session_id)
        if occupant is None:
            raise SessionNotFound("no lane is open for this session")
        if occupant.epoch != epoch:
            raise StaleEpoch(f"the lane is leased under epoch {occupant.epoch}, not {epoch}")
        return occupant

    def find_for(self, session_id: str, epoch: int, operation_number: int) -> Occupant:
        """As `find`, for an operation on the session; from now on those with a lower number are refused.

        A router that was given up may wake up and go on. 0: not numbered, never refused.

        Raises:
            SessionNotFound, StaleEpoch
        """
        occupant = self.find(session_id, epoch)
        if operation_number:
            if operation_number < occupant.operation_number:
                raise StaleEpoch(
                    f"the lane is in the hands of operation {occupant.operation_number}, not {operation_number}"
                )
            occupant.operation_number = operation_number
        return occupant

    def free(self, occupant: Occupant) -> None:
        """Gives the lane back."""
        del self._occupants[occupant.session_id]
        self.give_back(occupant.lane)
        with self._lock:
            del self._published[occupant.session_id]

    def occupants(self) -> tuple[Occupant, ...]:
        return tuple(self._occupants.values())

    def state(self, occupant: Occupant) -> LaneState:
        lane = occupant.lane
        live_bytes = lane.num_live_slots * self.kv_bytes_per_token
        return LaneState(lane.length, live_bytes, lane.retained, lane.num_rewinds, lane.history_digest)

    def opened(self, occupant: Occupant) -> OpenLane:
        """What the opener of the session is told."""
        return OpenLane(self.state(occupant), occupant.lane.retention.sink, occupant.lane.retention.window)

    def publish(self, occupant: Occupant) -> None:
        """Lets other threads see the lane as it is now."""
        with self._lock:
            self._revision += 1
            self._published[occupant.session_id] = LaneReport(
                occupant.session_id, occupant.epoch, self.state(occupant), self._revision, occupant.lane.index
            )

    def reports(self, after_revision: int = 0) -> tuple[LaneReport, ...]:
        """Lanes that changed after a revision; any thread may ask."""
        with self._lock:
            return tuple(report for report in self._published.values() if report.revision > after_revision)

    @property
    def lane_bytes(self) -> int:
        """What a session reserves: K and V of all its slots, and what the worker's proposer or draft model keeps."""
        return self.geometry.num_slots * self.kv_bytes_per_token + self._proposer_bytes

    def live_bytes(self) -> dict[int, int]:
        """Of each lane that is in use, by its index."""
        return {
            occupant.lane.index: occupant.lane.num_live_slots * self.kv_bytes_per_token for occupant in self.occupants()
        }

    def totals(self) -> SlabTotals:
        """The slab's own count; any thread may ask."""
        reports = self.reports()
        return SlabTotals(
            slab_bytes=self.lane_bytes * self.num_lanes,
            lane_bytes=self.lane_bytes,
            num_lanes=self.num_lanes,
            num_lanes_in_use=len(reports),
            kv_live_bytes=sum(report.state.kv_live_bytes for report in reports),
            kv_bytes_per_token=self.kv_bytes_per_token,
        )
