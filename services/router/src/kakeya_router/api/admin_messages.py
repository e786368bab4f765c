"""Records of the store as messages of `kakeya.admin.v1`."""

from kakeya_router.access.tenants import Tenant
from kakeya_router.contract.same_names import same_named
from kakeya_router.live.views import NOT_LATE
from kakeya_router.store.access.credential_records import Key, Token
from kakeya_router.store.access.rights import Scope
from kakeya_router.store.session_record import SessionRecord, parse_ranges
from kakeya_router.store.sessions.operation_store import LastTurn
from kakeya_router.store.sessions.session_store import Glance
from kakeya_router.store.watched_session import WatchedSession
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_stubs.admin.v1 import admin_pb2 as pb

_SCOPES = {Scope.SESSIONS: pb.SCOPE_SESSIONS, Scope.ADMIN: pb.SCOPE_ADMIN}


def key(record: Key) -> pb.Key:
    return pb.Key(
        key_id=record.credential_id,
        tenant=record.tenant,
        scopes=sorted(_SCOPES[scope] for scope in record.scopes),
        label=record.label,
        created_at=record.created_ms / 1000,
        expires_at=record.expires_ms / 1000,
    )


def token(record: Token) -> pb.Token:
    return pb.Token(
        **same_named(record, pb.Token.DESCRIPTOR.fields_by_name),
        token_id=record.credential_id,
        created_at=record.created_ms / 1000,
        expires_at=record.expires_ms / 1000,
    )


def tenant(tenant: Tenant) -> pb.Tenant:
    return pb.Tenant(
        name=tenant.name,
        quota=pb.Quota(**same_named(tenant.quota, pb.Quota.DESCRIPTOR.fields_by_name)),
        has_own_quota=tenant.has_own_quota,
        usage=[
            pb.PoolUsage(
                pool=pool,
                num_sessions=max(0, usage.num_sessions),  # as of a worker
                reserved_bytes=max(0, usage.reserved_bytes),
                num_waiting=usage.num_waiting,
            )
            for pool, usage in sorted(tenant.usage.items())
        ],
    )


def session(glance: Glance) -> pb.Session:
    return _session(glance.record, glance.idle_seconds, is_busy=glance.busy)


def watched(session: WatchedSession, now_ms: int) -> pb.Session:
    idle_seconds = 0.0 if session.busy else max(0, now_ms - session.idle_since_ms) / 1000
    return _session(session, idle_seconds, is_busy=session.busy)


def _session(record: SessionRecord | WatchedSession, idle_seconds: float, *, is_busy: bool) -> pb.Session:
    said = same_named(record, pb.Session.DESCRIPTOR.fields_by_name)
    epoch, _, lane = record.lane_place.partition(" ")
    said |= {
        "client_label": record.label,
        "idle_seconds": idle_seconds,
        "busy": is_busy,
        "sink": max(0, record.sink),  # below it until its worker has said it
        "window": max(0, record.window),
        "retained": [pb.HistoryRange(start=each.start, end=each.stop) for each in parse_ranges(record.retained)],
        "lane": int(lane) if record.reserved_bytes and epoch == str(record.epoch) else None,
        "last_turn": _last_turn(record.last_turn),
    }
    return pb.Session(**said)


def _last_turn(text: str) -> pb.LastTurn | None:
    turn = LastTurn.parse(text)
    if turn is None:
        return None
    return pb.LastTurn(**same_named(turn, pb.LastTurn.DESCRIPTOR.fields_by_name), ended_at=turn.ended_ms / 1000)


def worker(record: WorkerRecord, now_ms: int) -> pb.WorkerStatus:
    said = same_named(record, pb.WorkerStatus.DESCRIPTOR.fields_by_name)
    for count in ("reserved_bytes", "kv_live_bytes", "num_sessions"):
        said[count] = max(0, said[count])  # below zero until an audit has corrected it
    said["features"], said["tunnels"] = record.feature_names, record.tunnel_routers
    said["address"] = "" if record.is_tunnelled else record.address
    age_ms = 0 if record.heartbeat_ms == NOT_LATE else max(0, now_ms - record.heartbeat_ms)
    return pb.WorkerStatus(**said, last_heartbeat_age_seconds=age_ms / 1000)
