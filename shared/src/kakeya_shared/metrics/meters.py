"""Meters: what a service counts and measures, each declared once where it is made.

A declaration has the meter's name, kind, unit, labels and meaning, and of a histogram its buckets with their reason.
docs/metrics.md is generated of all of them (`make docs`). The arithmetic and the forms of Prometheus are
prometheus_client's.
"""

import itertools
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

import prometheus_client
from opentelemetry import trace
from prometheus_client import CollectorRegistry, GCCollector, Metric, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

# A second sample a series, of when it began: Prometheus's servers have no use for it.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # it is not annotated

# Oftener than Prometheus reads.
_EXEMPLAR_SECONDS = 1.0

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Buckets:
    """Upper bounds of a histogram's classic buckets, ascending, and why they are these."""

    bounds: tuple[float, ...]
    reason: str


@dataclass(frozen=True)
class Label:
    """A label all of whose few values are known: their series are there from the start, at 0.

    Of one that begins with its first event Prometheus knows no number from before, and so misses that event.
    """

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Declaration:
    """What a meter is; `name` is whole, as a query spells it, and ends with the unit (and `_total`)."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str | Label, ...]
    buckets: Buckets | None = None

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name if isinstance(label, Label) else label for label in self.labels)

    @property
    def known_series(self) -> Iterable[tuple[str, ...]]:
        """Values of all labels, where all of them are known."""
        known = [label.values for label in self.labels if isinstance(label, Label)]
        return itertools.product(*known) if known and len(known) == len(self.labels) else ()


class Counter(prometheus_client.Counter):
    """What only rises."""


class Gauge(prometheus_client.Gauge):
    """What rises and falls."""


class Histogram(prometheus_client.Histogram):
    """How often what lasted how long, or was how much.

    A value that is observed inside a sampled span carries its trace id as an exemplar, in OpenMetrics' form: in each
    bucket the first in a while. A bucket shows its latest only, and an exemplar costs more than the counting.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._next_exemplars = [0.0] * len(self._upper_bounds)  # on the monotonic clock, by bucket

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        super().observe(amount, exemplar or self._exemplar(amount))

    def _exemplar(self, amount: float) -> dict[str, str] | None:
        context = trace.get_current_span().get_span_context()
        if not (context.is_valid and context.trace_flags.sampled):
            return None
        bucket, now = bisect_left(self._upper_bounds, amount), time.monotonic()
        if now < self._next_exemplars[bucket]:
            return None
        self._next_exemplars[bucket] = now + _EXEMPLAR_SECONDS
        return {"trace_id": trace.format_trace_id(context.trace_id)}


class Meters:
    """A registry of its own, so that a process may hold several.

    Args:
        is_on: a service whose metrics are off has meters that take everything and keep nothing.

    Attributes:
        declarations: of all meters so far, in their order.
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self.is_on = is_on
        self.declarations: list[Declaration] = []
        self._registry = CollectorRegistry()
        self._refreshers: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        if is_on:
            ProcessCollector(registry=self._registry)
            PlatformCollector(registry=self._registry)
            GCCollector(registry=self._registry)

    def counter(self, name: str, meaning: str, *labels: str | Label, unit: str = "") -> Counter:
        """Declares one; `name` ends with `_total`."""
        return cast(Counter, self._made(Counter, Declaration(name, "counter", unit, meaning, labels)))

    def gauge(self, name: str, meaning: str, *labels: str | Label, unit: str = "") -> Gauge:
        """Declares one."""
        return cast(Gauge, self._made(Gauge, Declaration(name, "gauge", unit, meaning, labels)))

    def histogram(
        self, name: str, meaning: str, *labels: str | Label, buckets: Buckets, unit: str = "seconds"
    ) -> Histogram:
        """Declares one."""
        declaration = Declaration(name, "histogram", unit, meaning, labels, buckets)
        return cast(Histogram, self._made(Histogram, declaration, buckets=buckets.bounds))

    def before_reading(self, refresh: Callable[[], None]) -> None:
        """Has `refresh` called before each reading: it sets gauges to what is so at that moment, in any thread."""
        self._refreshers.append(refresh)

    def read(self) -> list[Metric]:
        """All of it now. Readings come one after the other: what one refresh has set is read together."""
        with self._lock:
            for refresh in self._refreshers:
                refresh()
            return [*self._registry.collect()]

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All of it in the form that a header `Accept` asks for, Prometheus's text or OpenMetrics, and its type."""
        encode, media_type = choose_encoder(accept)
        return encode(cast(CollectorRegistry, _Read(self.read()))), media_type

    def _made(self, kind: Any, declaration: Declaration, **options: Any) -> Any:
        self.declarations.append(declaration)
        if not self.is_on:
            return _OFF
        options |= {"unit": declaration.unit, "registry": self._registry}
        meter = kind(declaration.name, declaration.meaning, declaration.label_names, **options)
        for values in declaration.known_series:
            meter.labels(*values)
        return meter


@dataclass(frozen=True)
class _Read:
    """A reading, for the encoders, which take a registry."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


class _Off:
    """Any meter of a service without metrics."""

    def labels(self, *values: str) -> "_Off":
        return self

    def inc(self, amount: float = 1) -> None:
        pass

    def set(self, value: float) -> None:
        pass

    def observe(self, amount: float) -> None:
        pass

    def clear(self) -> None:
        pass


_OFF = _Off()
