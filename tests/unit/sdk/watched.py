"""What a runtime tells of itself in tests."""

from typing import Any

from kakeya_stubs.admin.v1 import admin_pb2 as pb

AT = 1_800_000_000.0


def session(session_id: str, **fields: Any) -> pb.Session:
    """An open one on a lane of worker-a."""
    given: dict[str, Any] = {
        "pool": "tiny",
        "model": "Tiny",
        "worker_id": "worker-a",
        "state": "open",
        "history_length": 100,
        "kv_live_bytes": 2000,
        "reserved_bytes": 4096,
        "sink": 4,
        "window": 16,
    }
    return pb.Session(session_id=session_id, **given | fields)


def worker(worker_id: str = "worker-a", **fields: Any) -> pb.WorkerStatus:
    """One of three lanes."""
    given: dict[str, Any] = {
        "incarnation": f"{worker_id}-1",
        "pool": "tiny",
        "model": "Tiny",
        "slab_bytes": 3 * 4096,
        "lane_bytes": 4096,
        "num_lanes": 3,
        "sink": 4,
        "window": 16,
        "kv_bytes_per_token": 100,
    }
    return pb.WorkerStatus(worker_id=worker_id, **given | fields)


def everything(*sessions: pb.Session, **fields: Any) -> pb.WatchResponse:
    """The first response: one worker and these sessions."""
    fleet = pb.FleetSums(num_workers=1, num_lanes=3, num_lanes_held=len(sessions), num_sessions=len(sessions))
    given: dict[str, Any] = {"workers": [worker()], "queues": [pb.PoolQueue(pool="tiny")], "fleet": fleet}
    return pb.WatchResponse(begins=True, at=AT, sessions=sessions, **given | fields)
