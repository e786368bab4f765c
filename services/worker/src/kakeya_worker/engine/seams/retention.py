"""The retention seam: which tokens of its history a session keeps, where, and at which distance it sees them.

A policy is found by the entry point group `kakeya.retention`; the entry point names a callable
`(SessionOptions, LaneGeometry) -> Retention` that raises InvalidField where the lane cannot hold what is asked.
Integers only: every backend obeys every policy.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.engine.seams.geometry import Booleans, Integers, LaneGeometry


@dataclass(frozen=True)
class SessionOptions:
    """What a session asks for when it opens.

    Attributes:
        sink: tokens; None for the lane's.
        window: tokens; None for the lane's, or what the sinks leave of it.
        pin: raises the sinks to at least this many tokens.
        refuses_overflow: tokens that do not fit are refused, instead of forgetting the oldest.
        speculation: name of the proposer that drafts for it; empty: the worker's default.
    """

    sink: int | None = None
    window: int | None = None
    pin: int = 0
    refuses_overflow: bool = False
    speculation: str = ""


class Retention(Protocol):
    """What one session keeps; fixed when it opens, and a function of history indices alone.

    Attributes:
        sink: the first tokens, kept for ever.
        window: the last tokens, kept until they leave it.
    """

    @property
    def sink(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def capacity(self) -> int:
        """The most tokens that are kept."""
        ...

    def slots(self, indices: Integers) -> Integers:
        """The slots of tokens by history index; the same shape."""
        ...

    def recent(self, start: int, end: int) -> range:
        """The tokens, sinks aside, that some query of start..end-1 may see."""
        ...

    def visible(self, queries: Integers, keys: Integers) -> Booleans:
        """Whether the token at a query's index sees the token at a key's; broadcasts."""
        ...

    def sink_positions(self, queries: Integers) -> Integers:
        """The position from which each query looks at the sinks (their own positions are their indices)."""
        ...

    def retained(self, length: int) -> tuple[range, ...]:
        """What is kept of a history of `length` tokens, ascending: V(length - 1), what its last token saw."""
        ...


def indices(kept: Iterable[range], start: int = 0) -> Integers:
    """Those of ranges, one after the other, from a history index on."""
    parts = [np.arange(max(part.start, start), max(part.stop, start)) for part in kept]
    return np.concatenate(parts) if parts else np.arange(0)


def are_in(positions: Integers, kept: Iterable[range]) -> Booleans:
    """Which of some history indices are in ranges."""
    found = np.zeros(positions.shape, dtype=bool)
    for part in kept:
        found |= (positions >= part.start) & (positions < part.stop)
    return found


class RetentionPolicy(Protocol):
    """Makes a session's retention.

    Raises:
        InvalidField: the lane cannot hold what is asked.
    """

    def __call__(self, options: SessionOptions, geometry: LaneGeometry) -> Retention: ...


@dataclass(frozen=True)
class SinkWindow:
    """Attention sinks and a sliding window: V(p) = { j <= p : j < S or j > p - W }.

    Positions are those inside the cache (StreamingLLM, arXiv 2309.17453, section 3.2): distance is p - j for the
    window and min(p, S + W - 1) - i for sink i, so that a session has no end.

    Sinks keep slots of their own; index j >= S lies in ring slot j mod R.
    """

    sink: int
    window: int
    num_ring_slots: int

    @property
    def capacity(self) -> int:
        return self.sink + self.window

    def slots(self, indices: Integers) -> Integers:
        return np.where(indices < self.sink, indices, self.sink + indices % self.num_ring_slots)

    def recent(self, start: int, end: int) -> range:
        return range(max(self.sink, start - self.window + 1), max(self.sink, end))

    def visible(self, queries: Integers, keys: Integers) -> Booleans:
        return (keys <= queries) & ((keys < self.sink) | (keys > queries - self.window))

    def sink_positions(self, queries: Integers) -> Integers:
        return np.minimum(queries, self.capacity - 1)

    def retained(self, length: int) -> tuple[range, ...]:
        if length <= self.capacity:
            return (range(length),) if length else ()
        recent = range(length - self.window, length)
        return (range(self.sink), recent) if self.sink else (recent,)


def sink_window(options: SessionOptions, geometry: LaneGeometry) -> SinkWindow:
    """The policy `sink-window`: a session divides the lane's capacity between sinks and window as it likes."""
    sink = max(geometry.sink if options.sink is None else options.sink, options.pin)
    if sink >= geometry.capacity:
        field = "pin" if sink == options.pin else "sink"
        raise _invalid(field, f"{sink} sinks leave no window: the lane keeps {geometry.capacity} tokens")
    window = min(geometry.window, geometry.capacity - sink) if options.window is None else options.window
    if window < 1:
        raise _invalid("window", "a window has at least 1 token")
    if sink + window > geometry.capacity:
        raise _invalid("window", f"{sink} sinks + window {window} exceed the {geometry.capacity} tokens the lane keeps")
    return SinkWindow(sink, window, geometry.num_ring_slots(window))


def _invalid(field: str, message: str) -> InvalidField:
    return InvalidField(f"{field}: {message}", metadata={"field": field})
