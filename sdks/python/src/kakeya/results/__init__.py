"""What the calls answer: plain values, without protobuf."""

from kakeya.results.models import ServedModel
from kakeya.results.objects import FetchedObject
from kakeya.results.sessions import (
    FoundSession,
    ListedSession,
    OverflowPolicy,
    ParkResult,
    PlaceKind,
    SessionInfo,
    SessionState,
)
from kakeya.results.turns import AppendResult, GenerateResult, RewindResult, Sight, StopReason, TokenDetail, Truncation
from kakeya.results.watched import (
    FleetSums,
    LastTurn,
    PoolQueue,
    WatchedRuntime,
    WatchedSession,
    WatchedWorker,
    WatchEvent,
)

__all__ = [
    "AppendResult", "GenerateResult", "RewindResult", "StopReason", "TokenDetail", "Truncation",
    "FoundSession", "ListedSession", "OverflowPolicy", "ParkResult", "PlaceKind", "SessionInfo", "SessionState",
    "FetchedObject", "ServedModel",
    "Sight",
    "FleetSums", "LastTurn", "PoolQueue", "WatchEvent", "WatchedRuntime", "WatchedSession", "WatchedWorker",
]  # fmt: skip
