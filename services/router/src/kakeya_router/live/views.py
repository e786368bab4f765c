"""What one viewer is shown: which things of the board, and what it is told of them at one time."""

from dataclasses import dataclass, field, replace

from kakeya_router.store.session_record import PoolName
from kakeya_router.store.sessions.watch_store import PoolView
from kakeya_router.store.watched_session import WatchedSession
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.process.bulletin import Unseen


@dataclass(frozen=True, slots=True)
class FleetSums:
    """Over all pools; see `kakeya.admin.v1.FleetSums`."""

    num_workers: int = 0
    slab_bytes: int = 0
    reserved_bytes: int = 0
    kv_live_bytes: int = 0
    num_lanes: int = 0
    num_lanes_held: int = 0
    num_sessions: int = 0
    num_waiting: int = 0


@dataclass(frozen=True, slots=True)
class PoolQueue:
    """Calls in the queue of a pool, and of these the tenants' that the viewer may see."""

    pool: PoolName
    num_waiting: int
    tenants: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, pool: PoolName, view: PoolView) -> "PoolQueue":
        return cls(pool, view.num_waiting, view.waiting)


NOT_LATE = 0
"""In place of a worker's `heartbeat_ms`: it has reported within seconds, and when is no news."""

Key = tuple[str, str]
"""Of a thing: its kind and its name."""
Thing = WatchedSession | WorkerRecord | PoolQueue | FleetSums
"""What stands on the board."""


@dataclass(frozen=True, slots=True)
class News:
    """What a viewer is told at one time.

    Attributes:
        begins: what it was told before is void.
        version: of the log, that the viewer has seen with it.
        fleet: the sums, where they have changed.
    """

    begins: bool
    version: int
    fleet: list[FleetSums] = field(default_factory=list)
    workers: list[WorkerRecord] = field(default_factory=list)
    gone_workers: list[WorkerRecord] = field(default_factory=list)
    sessions: list[WatchedSession] = field(default_factory=list)
    gone_sessions: list[WatchedSession] = field(default_factory=list)
    queues: list[PoolQueue] = field(default_factory=list)
    gone_queues: list[PoolQueue] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        lists = (self.workers, self.gone_workers, self.sessions, self.gone_sessions, self.queues, self.gone_queues)
        return not any((self.fleet, *lists))


@dataclass(frozen=True, slots=True)
class Sight:
    """Who looks.

    Attributes:
        tenant: sees its own sessions and the sums over all; None: an operator, who sees everything.
    """

    tenant: str | None

    def news(self, unseen: Unseen[Key, Thing]) -> News:
        """Of what has changed, as much as this viewer may see."""
        news = News(unseen.begins, unseen.version)
        for change in unseen.changes:
            match change.value:
                case WatchedSession() as session if self.tenant in (None, session.tenant):
                    (news.gone_sessions if change.is_removed else news.sessions).append(session)
                case WorkerRecord() as worker if self.tenant is None:
                    (news.gone_workers if change.is_removed else news.workers).append(worker)
                case PoolQueue() as queue:
                    (news.gone_queues if change.is_removed else news.queues).append(self._queue(queue))
                case FleetSums() as sums:
                    news.fleet.append(sums)
        return news

    def _queue(self, queue: PoolQueue) -> PoolQueue:
        if self.tenant is None:
            return queue
        return replace(queue, tenants=tuple(each for each in queue.tenants if each[0] == self.tenant))
