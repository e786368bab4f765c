"""Who holds which lane, and what of it the rest of the process may know at any time.

The engine's thread changes the table; other threads read what it published, without waiting for a step.
"""

import threading
from dataclasses import dataclass

from kakeya_shared.errors import NoCapacity, SessionNotFound, StaleEpoch
from kakeya_worker.engine.geometry import LaneGeometry
from kakeya_worker.engine.lane import Lane
from kakeya_worker.engine.operation import Append, Generate, LaneState
from kakeya_worker.engine.retention import RetentionPolicy, SessionOptions


@dataclass(frozen=True)
class LaneReport:
    """One session's lane at its last change; `revision` rises with every change in the table."""

    session_id: str
    epoch: int
    state: LaneState
    revision: int


@dataclass(frozen=True)
class SlabTotals:
    """The slab as a whole, in bytes and lanes."""

    slab_bytes: int
    lane_bytes: int
    num_lanes: int
    num_lanes_in_use: int
    kv_live_bytes: int
    kv_bytes_per_token: int


@dataclass(eq=False)
class Tenancy:
    """A session on its lane."""

    session_id: str
    epoch: int
    lane: Lane
    operation: Append | Generate | None = None


class LaneTable:
    """Lanes by session.

    Args:
        kv_bytes_per_token: bytes of one slot.
        retention: what sessions keep.
    """

    def __init__(
        self, geometry: LaneGeometry, num_lanes: int, kv_bytes_per_token: int, retention: RetentionPolicy
    ) -> None:
        self._retention = retention
        self.geometry = geometry
        self.num_lanes = num_lanes
        self.kv_bytes_per_token = kv_bytes_per_token
        self._free = list(reversed(range(num_lanes)))
        self._tenancies: dict[str, Tenancy] = {}
        self._published: dict[str, LaneReport] = {}
        self._revision = 0
        self._lock = threading.Lock()

    def open(self, session_id: str, epoch: int, options: SessionOptions) -> Tenancy:
        """Takes a lane; repeated under the same epoch it changes nothing.

        Raises:
            InvalidField: the lane cannot hold what is asked.
            NoCapacity: every lane is taken.
            StaleEpoch: the session is open under another epoch.
        """
        if session_id in self._tenancies:
            return self.find(session_id, epoch)
        retention = self._retention(options, self.geometry)
        if not self._free:
            raise NoCapacity(f"all {self.num_lanes} lanes are in use")
        lane = Lane(self.geometry, self._free.pop(), retention, options.refuses_overflow)
        self._tenancies[session_id] = tenancy = Tenancy(session_id, epoch, lane)
        self.publish(tenancy)
        return tenancy

    def find(self, session_id: str, epoch: int) -> Tenancy:
        """Raises SessionNotFound, or StaleEpoch where the lease is not the lane's."""
        tenancy = self._tenancies.get(session_id)
        if tenancy is None:
            raise SessionNotFound("no lane is open for this session")
        if tenancy.epoch != epoch:
            raise StaleEpoch(f"the lane is leased under epoch {tenancy.epoch}, not {epoch}")
        return tenancy

    def free(self, tenancy: Tenancy) -> None:
        """Gives the lane back."""
        del self._tenancies[tenancy.session_id]
        self._free.append(tenancy.lane.index)
        with self._lock:
            del self._published[tenancy.session_id]

    def tenancies(self) -> tuple[Tenancy, ...]:
        return tuple(self._tenancies.values())

    def state(self, tenancy: Tenancy) -> LaneState:
        lane = tenancy.lane
        return LaneState(lane.length, lane.num_live_slots * self.kv_bytes_per_token, lane.retained)

    def publish(self, tenancy: Tenancy) -> None:
        """Lets other threads see the lane as it is now."""
        with self._lock:
            self._revision += 1
            self._published[tenancy.session_id] = LaneReport(
                tenancy.session_id, tenancy.epoch, self.state(tenancy), self._revision
            )

    def reports(self, after_revision: int = 0) -> tuple[LaneReport, ...]:
        """Lanes that changed after a revision; any thread may ask."""
        with self._lock:
            return tuple(report for report in self._published.values() if report.revision > after_revision)

    def totals(self) -> SlabTotals:
        """The slab's own count; any thread may ask."""
        reports = self.reports()
        lane_bytes = self.geometry.num_slots * self.kv_bytes_per_token
        return SlabTotals(
            slab_bytes=lane_bytes * self.num_lanes,
            lane_bytes=lane_bytes,
            num_lanes=self.num_lanes,
            num_lanes_in_use=len(reports),
            kv_live_bytes=sum(report.state.kv_live_bytes for report in reports),
            kv_bytes_per_token=self.kv_bytes_per_token,
        )
