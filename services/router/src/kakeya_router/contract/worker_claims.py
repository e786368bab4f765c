"""What a worker may say of itself and its lanes, so that no number or name of it upsets the ledger.

Sums over all lanes of a worker must be numbers that Redis counts in, as well.
"""

import re

from kakeya_router.contract import validation
from kakeya_router.contract.same_names import same_named
from kakeya_router.contract.validation import MAX_COUNT
from kakeya_router.store.fleet.heartbeat_store import Lane
from kakeya_router.store.fleet.worker_store import Identity
from kakeya_router.store.keys import POOL_NAME, pool_of
from kakeya_router.store.session_record import TUNNELLED, Epoch, SessionId, ranges_text
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.contract import labels
from kakeya_shared.settings.addresses import HostPort
from kakeya_stubs.worker.v1 import registry_pb2 as pb

# 64 TiB: as much on each of the most lanes is 2^62.
MAX_LANE_BYTES = 1 << 46
MAX_LANES = 1 << 16
MAX_RETAINED_RANGES = 1024
MAX_SWEPT_NAMES = 1024
MAX_POOL_BYTES = 63  # a DNS label, as Kubernetes wants it

MAX_WORKER_ID_BYTES = 128
MAX_FEATURES = 64
_FEATURE = re.compile(r"[a-z0-9-]{1,64}")
_TUNNELLED = re.compile(r"(?:[0-9a-f]{2}){1,32}")
MAX_TUNNELS = 16
MAX_ROUTER_BYTES = 300

_IDENTITY = {"worker_id": MAX_WORKER_ID_BYTES, "incarnation": 64}
_NAMES = {"model": labels.MAX_MODEL_BYTES, "fingerprint": validation.MAX_FINGERPRINT_BYTES}
_NOTES = {"backend": 64, "dtype": 64, "weights": 64, "tokenizer_digest": 64, "model_digest": 64, "snapshot_store": 256}
_SIZES = ("slab_bytes", "lane_bytes", "num_lanes", "window", "kv_bytes_per_token", "vocab_size")
_LARGEST = {"slab_bytes": MAX_COUNT, "kv_bytes_per_token": MAX_COUNT, "num_lanes": MAX_LANES}
_LARGEST |= {"lane_bytes": MAX_LANE_BYTES, "snapshot_free_bytes": MAX_COUNT}


def joined(request: pb.JoinRequest, token_id: str = "") -> WorkerRecord:
    """The worker as it says that it is; raises InvalidField.

    Args:
        token_id: of the join token that it has shown.
    """
    identity(request)
    _check_names(request, _NAMES)
    validation.check_texts(request, _NOTES)
    for field in _SIZES:
        if not getattr(request, field):
            raise validation.invalid(field, "must be at least 1")
    validation.check_numbers(request, _LARGEST)
    if request.slab_bytes != request.num_lanes * request.lane_bytes:
        raise validation.invalid("slab_bytes", "must be num_lanes times lane_bytes")
    if not 0 <= request.prefill_tokens_per_second <= MAX_COUNT:
        raise validation.invalid("prefill_tokens_per_second", f"must be at least 0 and at most {MAX_COUNT}")
    said = same_named(request, WorkerRecord.__dataclass_fields__)
    rate = round(request.prefill_tokens_per_second)
    found = {"prefill_tokens_per_second": rate, "features": _features(request), "address": _address(request)}
    return WorkerRecord(**said | found, token_id=token_id)


def _address(request: pb.JoinRequest) -> str:
    """Where routers reach it. Raises InvalidField."""
    if request.tunnel:
        if request.address:
            raise validation.invalid("address", "a worker that is reached through tunnels has none")
        if not _TUNNELLED.fullmatch(request.incarnation):
            raise validation.invalid("incarnation", f"must match {_TUNNELLED.pattern} with tunnels")
        return f"{TUNNELLED}{request.incarnation}"
    _check_names(request, {"address": 256})
    try:
        HostPort.parse(request.address)
    except ValueError as error:
        raise validation.invalid("address", "is not HOST:PORT") from error
    return request.address


def _features(request: pb.JoinRequest) -> str:
    """As a record has them. Raises InvalidField."""
    _check_length("features", len(request.features), MAX_FEATURES)
    if not all(map(_FEATURE.fullmatch, request.features)):
        raise validation.invalid("features", f"each must match {_FEATURE.pattern}")
    return ",".join(sorted(set(request.features)))


def tunnels(request: pb.HeartbeatRequest) -> str:
    """As a record has them; raises InvalidField."""
    _check_length("tunnels", len(request.tunnels), MAX_TUNNELS)
    for router in request.tunnels:
        try:
            HostPort.parse(router)
        except ValueError as error:
            raise validation.invalid("tunnels", "a router's name is its address, HOST:PORT") from error
        if len(router) > MAX_ROUTER_BYTES:
            raise validation.invalid("tunnels", f"a name is longer than {MAX_ROUTER_BYTES} bytes")
    return ",".join(request.tunnels)


def lanes(request: pb.HeartbeatRequest) -> list[Lane]:
    """What a worker says of its lanes; raises InvalidField."""
    validation.check_numbers(request, {"kv_live_bytes": MAX_COUNT, "rss_bytes": MAX_COUNT, "number": MAX_COUNT})
    _check_length("lanes", len(request.lanes), MAX_LANES)
    return [_lane(report) for report in request.lanes]


def may_be_leased(lane: Lane) -> bool:
    """Whether some router may have opened this lane; else it is one to free.

    A process that reaches a worker can open lanes of any name on it; the lanes of sessions must not suffer from that.
    """
    return pool_of(lane.session_id) is not None and lane.epoch <= MAX_COUNT


def check_sweep(request: pb.SweepSnapshotsRequest) -> None:
    """Raises InvalidField."""
    _check_length("names", len(request.names), MAX_SWEPT_NAMES)


def identity(
    request: pb.JoinRequest | pb.HeartbeatRequest | pb.SweepSnapshotsRequest | pb.LeaveRequest | pb.TunnelRequest.Begin,
) -> Identity:
    """Who asks; raises InvalidField."""
    check_pool(request.pool)
    _check_names(request, _IDENTITY)
    return Identity(**same_named(request, Identity._fields))


def check_pool(pool: str) -> None:
    """Raises InvalidField."""
    if len(pool) > MAX_POOL_BYTES or not POOL_NAME.fullmatch(pool):
        raise validation.invalid("pool", f"must match [a-z0-9][a-z0-9-]* and have at most {MAX_POOL_BYTES} letters")


def _check_names(request: object, max_bytes: dict[str, int]) -> None:
    for field in max_bytes:
        if not getattr(request, field):
            raise validation.invalid(field, "is empty")
    validation.check_texts(request, max_bytes)


def _check_length(field: str, length: int, most: int) -> None:
    if length > most:
        raise validation.invalid(field, f"{length} of them; at most {most}")


def _lane(report: pb.LaneReport) -> Lane:
    if report.history_length > MAX_COUNT or report.kv_live_bytes > MAX_LANE_BYTES:
        raise validation.invalid("lanes", "history_length or kv_live_bytes is too large")
    if len(report.retained) > MAX_RETAINED_RANGES:
        raise validation.invalid("lanes", f"more than {MAX_RETAINED_RANGES} retained ranges")
    end = 0
    for part in report.retained:
        if not end <= part.start < part.end <= report.history_length:
            raise validation.invalid("lanes", "retained ranges must ascend and end with the history")
        end = part.end
    retained = ranges_text(range(part.start, part.end) for part in report.retained)
    if report.lane >= MAX_LANES:
        raise validation.invalid("lanes", f"a lane's number must be below {MAX_LANES}")
    return Lane(  # by hand: a thousand workers report thousands of lanes a second
        SessionId(report.session_id),
        Epoch(report.epoch),
        report.history_length,
        report.kv_live_bytes,
        retained,
        report.num_rewinds,
        report.lane if report.HasField("lane") else None,
    )
