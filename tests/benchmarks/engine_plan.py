"""What a run of `make bench-engine` consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.engine_case import DECODE, PREFILL, SMALL_WINDOW, Case
from tests.benchmarks.qwen3_session import SHAPE

LARGE_WINDOW = 2048


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        shape: of the model, as transformers' config of a Qwen3 names it.
        windows: keys that a token sees.
        num_sessions: that decode together.
        num_prefill_tokens: of one session.
        chunk: tokens of a step of Kakeya's prefill; a worker's default.
        large_chunk: another one, shown beside it in the smallest window.
        num_rounds: in which everybody is measured once in every case.
        burst_seconds: how long one is measured at a time.
        num_threads: of everybody.
    """

    shape: Mapping[str, Any] = field(default_factory=lambda: SHAPE)
    windows: Sequence[int] = (SMALL_WINDOW, LARGE_WINDOW)
    num_sessions: Sequence[int] = (1, 2, 4, 8)
    num_prefill_tokens: Sequence[int] = (64, 256, 512)
    chunk: int = 32
    large_chunk: int = 128
    num_rounds: int = 7
    burst_seconds: float = 0.3
    num_threads: int = 2

    def cases(self, window: int) -> list[Case]:
        """Of one window."""
        return [
            *(Case(DECODE, number, window) for number in self.num_sessions),
            *(Case(PREFILL, number, window) for number in self.num_prefill_tokens),
        ]
