"""What a worker is told that opens a lane."""

from collections.abc import Sequence
from typing import TypeVar

from kakeya_router.store.session_record import UNSET, Overflow, SessionRecord
from kakeya_stubs.worker.v1 import verifier_pb2 as pb

_Opening = TypeVar("_Opening", pb.OpenSessionRequest, pb.WriteLaneRequest)


def of_source(record: SessionRecord, source: SessionRecord | None) -> pb.OpenSessionRequest:
    """A lane with the history of a source, whose lane has its options; without one an empty lane."""
    if source is None:
        return _leased(record, _options(record))
    length = source.history_length
    copied = pb.ForkSource(
        session_id=source.session_id,
        epoch=source.epoch,
        history_length=length,
        history_digest=source.digest_at(length),
    )
    return _leased(record, pb.OpenSessionRequest(fork_from=copied))


def of_snapshots(record: SessionRecord, names: Sequence[str]) -> pb.OpenSessionRequest:
    """A lane with what these hold; without any an empty one."""
    if not names:
        return _leased(record, _options(record))
    return _leased(record, pb.OpenSessionRequest(snapshots=names, inexact=record.inexact_resume))


def of_another_lane(record: SessionRecord) -> pb.WriteLaneRequest:
    """A lane with what another worker has sent."""
    return _leased(record, pb.WriteLaneRequest(inexact=record.inexact_resume))


def _options(record: SessionRecord) -> pb.OpenSessionRequest:
    given = {name: value for name in ("sink", "window", "pin") if (value := getattr(record, name)) != UNSET}
    return pb.OpenSessionRequest(**given, refuse_overflow=record.on_overflow is Overflow.REFUSE)


def _leased(record: SessionRecord, request: _Opening) -> _Opening:
    request.session_id, request.epoch, request.tenant = record.session_id, record.epoch, record.tenant
    request.incarnation, request.speculation = record.incarnation, record.speculation
    return request
