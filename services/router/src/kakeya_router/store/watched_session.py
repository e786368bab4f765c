"""What viewers see of a session: some fields of its record, and whether an operation runs."""

from dataclasses import dataclass

from kakeya_router.store.session_record import Epoch, Hash, Incarnation, PoolName, SessionId, State, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSession(Hash):
    """One session; its fields are those of a `SessionRecord`.

    Attributes:
        busy: whether an operation runs.
    """

    session_id: SessionId
    pool: PoolName
    state: State
    model: str
    worker_id: WorkerId
    incarnation: Incarnation
    epoch: Epoch
    sink: int
    window: int
    reserved_bytes: int
    tenant: str = ""
    key_id: str = ""
    label: str = ""
    history_length: int = 0
    kv_live_bytes: int = 0
    retained: str = ""
    idle_since_ms: int = 0
    lane_place: str = ""
    last_turn: str = ""
    busy: bool = False
