"""What `watch` tells of a runtime: what there is, and what has changed."""

from dataclasses import dataclass, field
from typing import Self

from kakeya.results.sessions import SessionState
from kakeya_stubs.admin.v1 import admin_pb2 as pb


@dataclass(frozen=True, slots=True)
class LastTurn:
    """The latest answer of a session that came to its end.

    Attributes:
        prefill_seconds: of all that was appended since the answer before.
        first_token_seconds: from the call's begin to the first token; 0: there was none.
        total_seconds: from the call's begin to its end.
        num_tokens: of the answer.
        ended_at: Unix time in seconds.
    """

    prefill_seconds: float
    first_token_seconds: float
    total_seconds: float
    num_tokens: int
    ended_at: float


@dataclass(frozen=True, slots=True)
class WatchedSession:
    """A session as the router has it on record.

    Attributes:
        key_id: of the key that made it; empty where no keys are asked for, as `tenant`.
        worker_id: of the worker that holds its lane; empty: it has none.
        lane: its number on that worker; None: none, or not known yet.
        idle_since: Unix time in seconds; while it is busy, of now.
        retained: what is kept of the history, as indices into it, ascending.
    """

    session_id: str
    tenant: str
    key_id: str
    label: str
    model: str
    pool: str
    worker_id: str
    lane: int | None
    state: SessionState
    busy: bool
    idle_since: float
    sink: int
    window: int
    history_length: int
    kv_live_bytes: int
    reserved_bytes: int
    retained: tuple[range, ...]
    last_turn: LastTurn | None

    @classmethod
    def from_wire(cls, session: pb.Session, at: float) -> Self:
        """Args:
        at: time of the message, Unix time in seconds.
        """
        turn = session.last_turn
        return cls(
            session_id=session.session_id,
            tenant=session.tenant,
            key_id=session.key_id,
            label=session.client_label,
            model=session.model,
            pool=session.pool,
            worker_id=session.worker_id,
            lane=session.lane if session.HasField("lane") else None,
            state=SessionState.of_name(session.state),
            busy=session.busy,
            idle_since=at - session.idle_seconds,
            sink=session.sink,
            window=session.window,
            history_length=session.history_length,
            kv_live_bytes=session.kv_live_bytes,
            reserved_bytes=session.reserved_bytes,
            retained=tuple(range(part.start, part.end) for part in session.retained),
            last_turn=None
            if not session.HasField("last_turn")
            else LastTurn(
                turn.prefill_seconds, turn.first_token_seconds, turn.total_seconds, turn.num_tokens, turn.ended_at
            ),
        )


@dataclass(frozen=True, slots=True)
class WatchedWorker:
    """A worker and its slab.

    Attributes:
        incarnation: one life of its process.
        slab_bytes: of all lanes; each has `lane_bytes`.
        num_sessions: that hold a lane.
        late_seconds: since its last heartbeat; 0: that is not late.
        rss_bytes: resident memory of its process; 0: not known.
    """

    worker_id: str
    incarnation: str
    pool: str
    model: str
    backend: str
    weights: str
    exact: bool
    slab_bytes: int
    lane_bytes: int
    num_lanes: int
    sink: int
    window: int
    kv_bytes_per_token: int
    reserved_bytes: int
    kv_live_bytes: int
    num_sessions: int
    rss_bytes: int
    draining: bool
    late_seconds: float

    @classmethod
    def from_wire(cls, worker: pb.WorkerStatus) -> Self:
        same = {name: getattr(worker, name) for name in cls.__dataclass_fields__ if name != "late_seconds"}
        return cls(**same, late_seconds=worker.last_heartbeat_age_seconds)


@dataclass(frozen=True, slots=True)
class PoolQueue:
    """Calls that wait for a lane.

    Attributes:
        tenants: how many of each tenant that the caller may see.
    """

    pool: str
    num_waiting: int
    tenants: dict[str, int]

    @classmethod
    def from_wire(cls, queue: pb.PoolQueue) -> Self:
        return cls(queue.pool, queue.num_waiting, {each.tenant: each.num_waiting for each in queue.tenants})


@dataclass(frozen=True, slots=True)
class FleetSums:
    """Over all pools.

    Attributes:
        num_lanes_held: lanes that sessions hold.
        num_sessions: that are kept, parked ones and those that have ended included.
    """

    num_workers: int = 0
    slab_bytes: int = 0
    reserved_bytes: int = 0
    kv_live_bytes: int = 0
    num_lanes: int = 0
    num_lanes_held: int = 0
    num_sessions: int = 0
    num_waiting: int = 0

    @classmethod
    def from_wire(cls, sums: pb.FleetSums) -> Self:
        return cls(**{name: getattr(sums, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """News of a runtime.

    Attributes:
        begins: what came before is void; what there is comes anew.
        continues: more of this moment follows at once.
        at: Unix time in seconds, by the runtime's clock.
        fleet: None where it has not changed.
        workers: of them only who may see all is told.
        gone_incarnations: of workers.
    """

    begins: bool
    continues: bool
    at: float
    fleet: FleetSums | None
    workers: tuple[WatchedWorker, ...]
    gone_incarnations: tuple[str, ...]
    sessions: tuple[WatchedSession, ...]
    gone_session_ids: tuple[str, ...]
    queues: tuple[PoolQueue, ...]
    gone_pools: tuple[str, ...]

    @classmethod
    def from_wire(cls, response: pb.WatchResponse) -> Self:
        return cls(
            begins=response.begins,
            continues=response.continues,
            at=response.at,
            fleet=FleetSums.from_wire(response.fleet) if response.HasField("fleet") else None,
            workers=tuple(map(WatchedWorker.from_wire, response.workers)),
            gone_incarnations=tuple(response.gone_incarnations),
            sessions=tuple(WatchedSession.from_wire(session, response.at) for session in response.sessions),
            gone_session_ids=tuple(response.gone_session_ids),
            queues=tuple(map(PoolQueue.from_wire, response.queues)),
            gone_pools=tuple(response.gone_pools),
        )


@dataclass(slots=True)
class WatchedRuntime:
    """What the events so far come to.

    Attributes:
        workers: by incarnation.
        sessions: by id.
        queues: by pool.
        at: of the latest event.
    """

    fleet: FleetSums = field(default_factory=FleetSums)
    workers: dict[str, WatchedWorker] = field(default_factory=dict)
    sessions: dict[str, WatchedSession] = field(default_factory=dict)
    queues: dict[str, PoolQueue] = field(default_factory=dict)
    at: float = 0.0

    def apply(self, event: WatchEvent) -> None:
        """Takes the news over."""
        if event.begins:
            self.fleet = FleetSums()
            for things in (self.workers, self.sessions, self.queues):
                things.clear()
        self.at = event.at
        self.fleet = event.fleet or self.fleet
        self.workers |= {worker.incarnation: worker for worker in event.workers}
        self.sessions |= {session.session_id: session for session in event.sessions}
        self.queues |= {queue.pool: queue for queue in event.queues}
        for incarnation in event.gone_incarnations:
            self.workers.pop(incarnation, None)
        for session_id in event.gone_session_ids:
            self.sessions.pop(session_id, None)
        for pool in event.gone_pools:
            self.queues.pop(pool, None)

    def lanes(self, worker: WatchedWorker) -> list[WatchedSession | None]:
        """Who holds which lane: [num_lanes]. A session whose lane has no number yet is shown on a free one."""
        held: list[WatchedSession | None] = [None] * worker.num_lanes
        unplaced = []
        for session in self.sessions.values():
            if (session.pool, session.worker_id) != (worker.pool, worker.worker_id) or not session.reserved_bytes:
                continue
            if session.lane is not None and session.lane < worker.num_lanes and held[session.lane] is None:
                held[session.lane] = session
            else:
                unplaced.append(session)
        free = [number for number, holder in enumerate(held) if holder is None]
        for number, session in zip(free, unplaced, strict=False):
            held[number] = session
        return held
