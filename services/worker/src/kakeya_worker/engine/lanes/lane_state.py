"""What others than the engine's thread are told of a lane, and how they name one."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class LaneState:
    """What the verifier holds for a session.

    Attributes:
        retained: the part of the history that is kept.
        num_rewinds: how often this lane was taken back.
        history_digest: see `kakeya_worker.engine.lanes.lane.Lane`.
    """

    history_length: int
    kv_live_bytes: int
    retained: tuple[range, ...]
    num_rewinds: int = 0
    history_digest: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class OpenLane:
    """A lane that was taken, with the sinks and the window that were chosen."""

    state: LaneState
    sink: int
    window: int


@dataclass(frozen=True)
class Stopped:
    """A session at rest; `token_ids` were generated since the length that was asked for, up to the lane's end."""

    state: LaneState
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class ForkSource:
    """A lane that another is to begin as a copy of; epoch, length and digest as in an `Operation`.

    Attributes:
        speculation: of the other; empty: the same.
    """

    session_id: str
    epoch: int
    history_length: int
    history_digest: int | None = None
    speculation: str = ""
