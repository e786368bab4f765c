"""Operations: a running Append or Generate of one session, as the engine sees it."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from kakeya_worker.engine.lane import Lane
from kakeya_worker.engine.sampling import Sampling

MAX_UNREAD_TOKENS = 64
MAX_PAUSE_SECONDS = 60.0


@dataclass(frozen=True)
class LaneState:
    """What the verifier holds for a session."""

    history_length: int
    kv_live_bytes: int


@dataclass(frozen=True)
class AppendResult:
    lane: LaneState
    prefill_seconds: float
    num_evicted: int


@dataclass(frozen=True)
class GenerateResult:
    lane: LaneState
    ended_by_eos: bool
    num_generated: int
    prefill_seconds: float
    total_seconds: float
    num_evicted: int


@dataclass(eq=False)
class Operation:
    """Common to both kinds. Made by a caller, who keeps it to cancel it; run by the engine.

    The future resolves when the engine has let go of the lane, and cannot be cancelled itself.

    Attributes:
        epoch: of the caller's lease.
        history_length: what the caller has on record; a lane of another length violates INV-1.
        lane: set when the engine takes the operation up.
    """

    session_id: str
    epoch: int
    history_length: int
    lane: Lane = field(init=False)
    num_evicted_before: int = field(init=False)
    started: float = field(init=False, default_factory=time.perf_counter)
    ended: float | None = field(init=False, default=None)
    is_cancelled: bool = field(init=False, default=False)

    def begin(self, lane: Lane) -> None:
        self.lane = lane
        self.num_evicted_before = lane.num_evicted

    @property
    def num_evicted(self) -> int:
        """Tokens that left the window since the operation began."""
        return self.lane.num_evicted - self.num_evicted_before

    @property
    def seconds(self) -> float:
        """So far, or until it ended."""
        return (self.ended or time.perf_counter()) - self.started


@dataclass(eq=False)
class Append(Operation):
    """Prefills tokens, a chunk a step."""

    token_ids: tuple[int, ...]
    future: "Future[AppendResult]" = field(init=False, default_factory=Future)
    num_done: int = field(init=False, default=0)

    def next_tokens(self, limit: int) -> tuple[int, ...]:
        return self.token_ids[self.num_done : self.num_done + limit]

    @property
    def is_complete(self) -> bool:
        return self.num_done == len(self.token_ids)


@dataclass(eq=False)
class Generate(Operation):
    """Generates a token a step; pauses while its reader is `MAX_UNREAD_TOKENS` behind.

    Attributes:
        on_token: called on the engine's thread with each token, in the step that is about to commit it. Should
            that step fail, the operation fails after a token that is not in the history.
    """

    max_tokens: int
    eos_token_ids: frozenset[int]
    sampling: Sampling
    on_token: Callable[[int], None]
    future: "Future[GenerateResult]" = field(init=False, default_factory=Future)
    num_generated: int = field(init=False, default=0)
    num_read: int = field(init=False, default=0)
    ended_by_eos: bool = field(init=False, default=False)
    paused_since: float | None = field(init=False, default=None)

    @property
    def num_unread(self) -> int:
        return self.num_generated - self.num_read

    @property
    def is_paused(self) -> bool:
        return self.num_unread >= MAX_UNREAD_TOKENS

    @property
    def is_complete(self) -> bool:
        return self.ended_by_eos or self.num_generated == self.max_tokens

    def deliver(self, token_id: int) -> None:
        self.num_generated += 1
        self.ended_by_eos = token_id in self.eos_token_ids
        self.on_token(token_id)

    def paused_too_long(self) -> bool:
        """Whether the reader has been behind for over MAX_PAUSE_SECONDS."""
        now = time.perf_counter()
        if not self.is_paused:
            self.paused_since = None
        elif self.paused_since is None:
            self.paused_since = now
        return self.paused_since is not None and now - self.paused_since > MAX_PAUSE_SECONDS
