"""What a worker may say of itself and its lanes, so that no number or name of it upsets the ledger.

Redis counts in 64-bit integers and its scripts in doubles, which are exact up to 2^53; sums over all lanes of a worker
must fit as well.
"""

from collections.abc import Iterable

from kakeya_router.contract import validation
from kakeya_router.store.keys import POOL_NAME, pool_of
from kakeya_shared.contract import labels
from kakeya_shared.settings.addresses import HostPort
from kakeya_stubs.worker.v1 import registry_pb2 as pb

MAX_COUNT = 1 << 53
# 64 TiB: as much on each of the most lanes is 2^62.
MAX_LANE_BYTES = 1 << 46
MAX_LANES = 1 << 16
MAX_RETAINED_RANGES = 1024
MAX_SWEPT_NAMES = 1024
MAX_POOL_BYTES = 63  # a DNS label, as Kubernetes wants it

MAX_WORKER_ID_BYTES = 128

_NAMES = {"worker_id": MAX_WORKER_ID_BYTES, "incarnation": 64, "model": labels.MAX_MODEL_BYTES, "address": 256}
_NAMES |= {"fingerprint": validation.MAX_FINGERPRINT_BYTES}
_NOTES = {"backend": 64, "dtype": 64, "weights": 64, "tokenizer_digest": 64, "model_digest": 64, "snapshot_store": 256}
_SIZES = ("slab_bytes", "lane_bytes", "num_lanes", "window", "kv_bytes_per_token", "vocab_size")


def check_join(request: pb.JoinRequest) -> None:
    """Raises InvalidField."""
    _check_identity(request.pool, request.worker_id, request.incarnation)
    for field, max_bytes in _NAMES.items():
        _check_name(field, getattr(request, field), max_bytes)
    for field, max_bytes in _NOTES.items():
        validation.check_text(field, getattr(request, field), max_bytes)
    for field in _SIZES:
        if not getattr(request, field):
            raise validation.invalid(field, "must be at least 1")
    _check_counts(request, ("slab_bytes", "kv_bytes_per_token"))
    if not 0 <= request.prefill_tokens_per_second <= MAX_COUNT:
        raise validation.invalid("prefill_tokens_per_second", f"must be at least 0 and at most {MAX_COUNT}")
    _check_lanes(request)
    try:
        HostPort.parse(request.address)
    except ValueError as error:
        raise validation.invalid("address", "is not HOST:PORT") from error


def check_heartbeat(request: pb.HeartbeatRequest) -> None:
    """Raises InvalidField."""
    _check_identity(request.pool, request.worker_id, request.incarnation)
    _check_counts(request, ("kv_live_bytes", "rss_bytes"))
    if len(request.lanes) > MAX_LANES:
        raise validation.invalid("lanes", f"{len(request.lanes)} of them; at most {MAX_LANES}")
    for lane in request.lanes:
        _check_lane(lane)


def may_be_leased(lane: pb.LaneReport) -> bool:
    """Whether some router may have opened this lane; else it is one to free.

    Whoever reaches a worker can open lanes of any name on it; the lanes of sessions must not suffer from that.
    """
    return pool_of(lane.session_id) is not None and lane.epoch <= MAX_COUNT


def check_leave(request: pb.LeaveRequest) -> None:
    """Raises InvalidField."""
    _check_identity(request.pool, request.worker_id, request.incarnation)


def check_sweep(request: pb.SweepSnapshotsRequest) -> None:
    """Raises InvalidField."""
    _check_identity(request.pool, request.worker_id, request.incarnation)
    if len(request.names) > MAX_SWEPT_NAMES:
        raise validation.invalid("names", f"{len(request.names)} of them; at most {MAX_SWEPT_NAMES}")


def check_pool(pool: str) -> None:
    """Raises InvalidField."""
    if len(pool) > MAX_POOL_BYTES or not POOL_NAME.fullmatch(pool):
        raise validation.invalid("pool", f"must match [a-z0-9][a-z0-9-]* and have at most {MAX_POOL_BYTES} letters")


def _check_identity(pool: str, worker_id: str, incarnation: str) -> None:
    check_pool(pool)
    _check_name("worker_id", worker_id, _NAMES["worker_id"])
    _check_name("incarnation", incarnation, _NAMES["incarnation"])


def _check_name(field: str, text: str, max_bytes: int) -> None:
    if not text:
        raise validation.invalid(field, "is empty")
    validation.check_text(field, text, max_bytes)


def _check_counts(message: pb.JoinRequest | pb.HeartbeatRequest | pb.LaneReport, fields: Iterable[str]) -> None:
    for field in fields:
        if getattr(message, field) > MAX_COUNT:
            raise validation.invalid(field, f"must be at most {MAX_COUNT}")


def _check_lanes(request: pb.JoinRequest) -> None:
    if request.num_lanes > MAX_LANES:
        raise validation.invalid("num_lanes", f"must be at most {MAX_LANES}")
    if request.lane_bytes > MAX_LANE_BYTES:
        raise validation.invalid("lane_bytes", f"must be at most {MAX_LANE_BYTES}")
    if request.slab_bytes != request.num_lanes * request.lane_bytes:
        raise validation.invalid("slab_bytes", "must be num_lanes times lane_bytes")


def _check_lane(lane: pb.LaneReport) -> None:
    if lane.history_length > MAX_COUNT or lane.kv_live_bytes > MAX_LANE_BYTES:
        raise validation.invalid("lanes", "history_length or kv_live_bytes is too large")
    if len(lane.retained) > MAX_RETAINED_RANGES:
        raise validation.invalid("lanes", f"more than {MAX_RETAINED_RANGES} retained ranges")
    end = 0
    for part in lane.retained:
        if not end <= part.start < part.end <= lane.history_length:
            raise validation.invalid("lanes", "retained ranges must ascend and end with the history")
        end = part.end
