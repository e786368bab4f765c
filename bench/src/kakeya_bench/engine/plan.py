"""What a run measures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DECODE, PREFILL = "decode", "prefill"
SMALL_WINDOW, LARGE_WINDOW, FAR_WINDOW = 64, 2048, 16_384
SHAPE: dict[str, Any] = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
}
"""Qwen3-0.6B's."""


@dataclass(frozen=True)
class Case:
    """One thing to time.

    Attributes:
        kind: DECODE or PREFILL.
        number: of sessions that decode one token each, or of tokens that one session is given.
        window: keys that a token sees in a full session, sinks included.
    """

    kind: str
    number: int
    window: int

    @property
    def name(self) -> str:
        """E.g. decode_8, prefill_64_w2048."""
        return f"{self.kind}_{self.number}" + (f"_w{self.window}" if self.window != SMALL_WINDOW else "")

    @property
    def num_sessions(self) -> int:
        return self.number if self.kind == DECODE else 1

    @property
    def num_new_tokens(self) -> int:
        """Of each session."""
        return self.number if self.kind == PREFILL else 1

    @property
    def num_held_tokens(self) -> int:
        """What a session of an engine without a window holds before: with the last new token it sees `window` keys.

        A prefill longer than the window begins with nothing.
        """
        return max(0, self.window - self.num_new_tokens)


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        shape: of the model, as transformers' config of a Qwen3 names it.
        windows: keys that a token sees.
        far_window: as many as only one session has, of the engines that attend at a fair speed: attention is nearly
            all that it takes.
        num_sessions: that decode together.
        num_prefill_tokens: of one session.
        chunk: tokens of a step of Kakeya's prefill; a worker's default.
        large_chunk: another one, shown beside it in the smallest window.
        num_rounds: in which everybody is measured once in every case.
        num_far_rounds: likewise, in the far window.
        burst_seconds: how long one is measured at a time.
        num_threads: of everybody.
    """

    shape: Mapping[str, Any] = field(default_factory=lambda: SHAPE)
    windows: Sequence[int] = (SMALL_WINDOW, LARGE_WINDOW)
    far_window: int = FAR_WINDOW
    num_sessions: Sequence[int] = (1, 2, 4, 8)
    num_prefill_tokens: Sequence[int] = (64, 256, 512)
    chunk: int = 32
    large_chunk: int = 128
    num_rounds: int = 7
    num_far_rounds: int = 3
    burst_seconds: float = 0.3
    num_threads: int = 2

    def cases(self, window: int) -> list[Case]:
        """Of one window."""
        return [
            *(Case(DECODE, number, window) for number in self.num_sessions),
            *(Case(PREFILL, number, window) for number in self.num_prefill_tokens),
        ]

    @property
    def far_cases(self) -> list[Case]:
        """Of the far window: a token, and the longest prefill."""
        return [Case(DECODE, 1, self.far_window), Case(PREFILL, max(self.num_prefill_tokens), self.far_window)]

    @property
    def all_cases(self) -> list[Case]:
        return [*(case for window in self.windows for case in self.cases(window)), *self.far_cases]

    @property
    def floor_case(self) -> Case:
        """The case beside which memory is read: one session and few keys, so that a step is little but its weights."""
        return Case(DECODE, 1, min(self.windows))

    @property
    def largest(self) -> Case:
        """The sessions with the most keys in all."""
        return Case(DECODE, max(self.num_sessions), max(self.windows))
