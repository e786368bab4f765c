"""What the calls answer: plain values, without protobuf."""

from kakeya.results.models import ServedModel
from kakeya.results.sessions import ListedSession, OverflowPolicy, ParkResult, SessionInfo, SessionState
from kakeya.results.turns import AppendResult, GenerateResult, RewindResult, Sight, StopReason, TokenDetail, Truncation

__all__ = [
    "AppendResult", "GenerateResult", "RewindResult", "StopReason", "TokenDetail", "Truncation",
    "ListedSession", "OverflowPolicy", "ParkResult", "SessionInfo", "SessionState",
    "ServedModel",
    "Sight",
]  # fmt: skip
