"""Records of the store as messages of `kakeya.admin.v1`."""

from kakeya_router.access.tenants import Tenant
from kakeya_router.contract.same_names import same_named
from kakeya_router.store.access.credential_records import Key, Token
from kakeya_router.store.access.rights import Scope
from kakeya_router.store.sessions.session_store import Glance
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
    return pb.Session(
        **same_named(glance.record, pb.Session.DESCRIPTOR.fields_by_name),
        client_label=glance.record.label,
        idle_seconds=glance.idle_seconds,
        busy=glance.busy,
    )


def worker(record: WorkerRecord, now_ms: int) -> pb.WorkerStatus:
    said = same_named(record, pb.WorkerStatus.DESCRIPTOR.fields_by_name)
    for count in ("reserved_bytes", "kv_live_bytes", "num_sessions"):
        said[count] = max(0, said[count])  # below zero until an audit has corrected it
    said["features"] = record.feature_names
    return pb.WorkerStatus(**said, last_heartbeat_age_seconds=max(0, now_ms - record.heartbeat_ms) / 1000)
