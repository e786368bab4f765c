"""Session records as messages of `kakeya.v1`."""

from kakeya_router.contract import lanes
from kakeya_router.store.session_record import SessionRecord, State
from kakeya_router.store.sessions.session_store import Glance
from kakeya_stubs.v1 import runtime_pb2 as api

_STATES = {
    State.OPENING: api.SESSION_STATE_OPENING,
    State.OPEN: api.SESSION_STATE_OPEN,
    State.CLOSING: api.SESSION_STATE_CLOSING,
    State.FAILED: api.SESSION_STATE_FAILED,
    State.LOST: api.SESSION_STATE_LOST,
    State.PARKED: api.SESSION_STATE_PARKED,
}


def created(record: SessionRecord) -> api.CreateSessionResponse:
    return api.CreateSessionResponse(
        session_id=record.session_id,
        model=record.model,
        sink=record.sink,
        window=record.window,
        reserved_bytes=record.reserved_bytes,
        exact=record.exact,
        fingerprint=record.fingerprint,
        vocab_size=record.vocab_size,
        history_length=record.history_length,
        kv_live_bytes=record.kv_live_bytes,
        ephemeral=record.ephemeral,
    )


def seen(glance: Glance) -> SessionRecord:
    """The session as it is where its worker is gone, if that is not on record yet."""
    return glance.record.without_lane() if glance.record.holds_lane and not glance.alive else glance.record


def info(record: SessionRecord, glance: Glance) -> api.GetSessionInfoResponse:
    """`record` is the one that was `seen`."""
    history_length = _history_length(record)
    return api.GetSessionInfoResponse(
        history_length=history_length,
        kv_live_bytes=record.kv_live_bytes,
        cache_invariant_inv1_violations=record.inv1_violations,
        cache_invariant_inv2_violations=record.inv2_violations,
        idle_seconds=glance.idle_seconds,
        state=_STATES[record.state],
        reserved_bytes=record.reserved_bytes,
        retained=lanes.retained(record.retained),
        exact=record.exact,
        fingerprint=record.fingerprint,
        model=record.model,
        worker=record.worker_id,
        epoch=record.epoch,
        boundaries=sorted({length for length in record.turn_boundaries if length <= history_length}),
        inexact_resume=record.inexact_resume,
        drafted_token_count=record.drafted_tokens,
        accepted_token_count=record.accepted_tokens,
    )


def listed(glance: Glance) -> api.Session:
    record = seen(glance)
    return api.Session(
        session_id=record.session_id,
        client_label=record.label,
        model=record.model,
        state=_STATES[record.state],
        history_length=_history_length(record),
        kv_live_bytes=record.kv_live_bytes,
        reserved_bytes=record.reserved_bytes,
        idle_seconds=glance.idle_seconds,
    )


def _history_length(record: SessionRecord) -> int:
    """Where it is being appended to, the lane is behind the journal; where it generates, ahead of it."""
    return max(record.history_length, record.journal_length)
