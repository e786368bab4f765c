"""Records of the store as messages of `kakeya.admin.v1`."""

from kakeya_router.access.tenants import Tenant
from kakeya_router.store.access.credential_records import Key, Token
from kakeya_router.store.access.rights import Quota, Scope
from kakeya_router.store.session_record import SessionRecord
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
        token_id=record.credential_id,
        pool=record.pool,
        worker_id=record.worker_id,
        model=record.model,
        label=record.label,
        created_at=record.created_ms / 1000,
        expires_at=record.expires_ms / 1000,
    )


def tenant(tenant: Tenant) -> pb.Tenant:
    return pb.Tenant(
        name=tenant.name,
        quota=_quota(tenant.quota),
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


def session(record: SessionRecord, *, busy: bool, now_ms: int) -> pb.Session:
    return pb.Session(
        session_id=record.session_id,
        tenant=record.tenant,
        key_id=record.key_id,
        client_label=record.label,
        model=record.model,
        pool=record.pool,
        worker_id=record.worker_id,
        state=record.state.value,
        history_length=record.history_length,
        reserved_bytes=record.reserved_bytes,
        kv_live_bytes=record.kv_live_bytes,
        idle_seconds=0.0 if busy else max(0, now_ms - record.idle_since_ms) / 1000,
        busy=busy,
    )


def worker(record: WorkerRecord, now_ms: int) -> pb.WorkerStatus:
    return pb.WorkerStatus(
        worker_id=record.worker_id,
        incarnation=record.incarnation,
        pool=record.pool,
        model=record.model,
        address=record.address,
        backend=record.backend,
        dtype=record.dtype,
        slab_bytes=record.slab_bytes,
        lane_bytes=record.lane_bytes,
        num_lanes=record.num_lanes,
        sink=record.sink,
        window=record.window,
        kv_bytes_per_token=record.kv_bytes_per_token,
        vocab_size=record.vocab_size,
        num_threads=record.num_threads,
        weights=record.weights,
        fingerprint=record.fingerprint,
        exact=record.exact,
        tokenizer_digest=record.tokenizer_digest,
        model_digest=record.model_digest,
        snapshot_store=record.snapshot_store,
        prefill_tokens_per_second=record.prefill_tokens_per_second,
        reserved_bytes=max(0, record.reserved_bytes),  # below zero until an audit has corrected it
        kv_live_bytes=max(0, record.kv_live_bytes),
        reported_kv_live_bytes=record.reported_kv_live_bytes,
        rss_bytes=record.rss_bytes,
        num_sessions=max(0, record.num_sessions),
        last_heartbeat_age_seconds=max(0, now_ms - record.heartbeat_ms) / 1000,
        draining=record.draining,
    )


def _quota(quota: Quota) -> pb.Quota:
    return pb.Quota(
        max_sessions=quota.max_sessions,
        max_reserved_bytes=quota.max_reserved_bytes,
        tokens_per_minute=quota.tokens_per_minute,
    )
