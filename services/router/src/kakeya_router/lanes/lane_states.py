"""What a worker has committed of a session, as its messages and as the session's record have it."""

from dataclasses import replace

from kakeya_router.store.records import SessionRecord
from kakeya_router.store.sessions import token_ranges
from kakeya_stubs.worker.v1.verifier_pb2 import LaneState, TokenRange


def with_lane(record: SessionRecord, lane: LaneState) -> SessionRecord:
    """The session with what the worker has committed."""
    return replace(
        record,
        history_length=lane.history_length,
        kv_live_bytes=lane.kv_live_bytes,
        retained=token_ranges.text(lane.retained),
    )


def lane_state(record: SessionRecord) -> LaneState:
    """What the worker has committed, as the record has it."""
    return LaneState(
        history_length=record.history_length,
        kv_live_bytes=record.kv_live_bytes,
        retained=[TokenRange(start=part.start, end=part.stop) for part in record.retained_ranges],
    )
