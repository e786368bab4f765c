"""What became of an operation: why a Generate ended, and what the caller is told."""

from dataclasses import dataclass
from enum import Enum, auto

from kakeya_worker.engine.lanes.lane_state import LaneState
from kakeya_worker.engine.sampling.sampling import TokenDetail


class Finish(Enum):
    """Why a Generate ended by itself."""

    MAX_TOKENS = auto()
    EOS = auto()
    STOP_SEQUENCE = auto()
    TRUNCATED = auto()  # the lane is full, and the session refuses to forget


@dataclass(frozen=True)
class AppendResult:
    """What became of it; `details` of the appended tokens, where they were asked for."""

    lane: LaneState
    prefill_seconds: float
    num_evicted: int
    details: tuple[TokenDetail, ...] = ()


@dataclass(frozen=True)
class GenerateResult:
    lane: LaneState
    finish: Finish
    num_generated: int
    prefill_seconds: float
    total_seconds: float
    num_evicted: int
    num_drafted: int = 0
    num_accepted: int = 0
    is_closed: bool = False
