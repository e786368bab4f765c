"""What meters keep, and in which forms it is read."""

import itertools
import math
import threading
import time

import pytest
from opentelemetry.sdk.trace import TracerProvider

from kakeya_shared.metrics.meters import Buckets, Histogram, Label, Meters
from tests.scrape import OPEN_METRICS, Exposition

BUCKETS = Buckets((0.1, 1.0), "one below and one above")


def read(meters: Meters, accept: str = "") -> Exposition:
    content, media_type = meters.exposition(accept)
    assert media_type.startswith("application/openmetrics-text" if accept else "text/plain")
    return Exposition.of(content.decode())


def test_what_is_counted_is_shown() -> None:
    meters = Meters()
    counter = meters.counter("toy_seen_tokens_total", "Seen.", "kind", unit="tokens")
    gauge = meters.gauge("toy_held_bytes", "Held.", unit="bytes")
    histogram = meters.histogram("toy_wait_seconds", "Waited.", buckets=BUCKETS)
    counter.labels("new").inc(3)
    gauge.set(7)
    histogram.observe(0.5)
    for accept in ("", OPEN_METRICS):
        seen = read(meters, accept)
        assert seen.value("toy_seen_tokens_total", kind="new") == 3
        assert seen.value("toy_held_bytes") == 7
        assert seen.by_label("toy_wait_seconds_bucket", "le") == {"0.1": 0, "1.0": 1, "+Inf": 1}
        assert not any("created" in sample.name for family in seen.families.values() for sample in family.samples)
    assert read(meters, OPEN_METRICS).families["toy_held_bytes"].unit == "bytes"


def test_declarations_say_what_was_asked_for() -> None:
    meters = Meters()
    meters.counter("toy_seen_total", "Seen.", "kind")
    meters.histogram("toy_wait_seconds", "Waited.", buckets=BUCKETS)
    first, second = meters.declarations
    assert (first.name, first.kind, first.unit, first.meaning, first.label_names) == (
        "toy_seen_total",
        "counter",
        "",
        "Seen.",
        ("kind",),
    )
    assert (second.kind, second.unit, second.buckets) == ("histogram", "seconds", BUCKETS)


def test_a_name_belongs_to_one_meter() -> None:
    meters = Meters()
    meters.gauge("toy_held", "Held.")
    with pytest.raises(ValueError, match="toy_held"):
        meters.gauge("toy_held", "Held again.")
    Meters().gauge("toy_held", "Another process's, so to speak.")


def test_meters_that_are_off_take_everything_and_keep_nothing() -> None:
    meters = Meters(is_on=False)
    meters.counter("toy_seen_total", "Seen.", "kind").labels("new").inc()
    gauge = meters.gauge("toy_held", "Held.")
    gauge.set(math.inf)
    gauge.clear()
    meters.histogram("toy_wait_seconds", "Waited.", buckets=BUCKETS).observe(1)
    assert [each.name for each in meters.declarations] == ["toy_seen_total", "toy_held", "toy_wait_seconds"]
    assert meters.exposition()[0] == b""


def test_a_processor_and_the_collection_of_garbage_are_measured() -> None:
    names = read(Meters()).families.keys()
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "python_gc_collections", "python_info"} <= names


def named_traces(meters: Meters) -> dict[str, str | None]:
    """By bucket of the toy histogram."""
    return {
        sample.labels["le"]: sample.exemplar.labels["trace_id"] if sample.exemplar else None
        for sample in read(meters, OPEN_METRICS).families["toy_wait_seconds"].samples
        if sample.name.endswith("_bucket")
    }


def observed_in_a_span(histogram: Histogram, amount: float) -> str:
    """Returns the id of its trace."""
    with TracerProvider().get_tracer("toy").start_as_current_span("call") as span:
        histogram.observe(amount)
    return f"{span.get_span_context().trace_id:032x}"


def test_a_value_inside_a_sampled_span_names_its_trace() -> None:
    meters = Meters()
    histogram = meters.histogram("toy_wait_seconds", "Waited.", buckets=BUCKETS)
    histogram.observe(0.05)
    trace_id = observed_in_a_span(histogram, 0.5)
    traces = named_traces(meters)
    assert (traces["0.1"], traces["1.0"]) == (None, trace_id)


def test_each_bucket_names_a_trace_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    meters = Meters()
    histogram = meters.histogram("toy_wait_seconds", "Waited.", "kind", buckets=BUCKETS).labels("one")
    first = observed_in_a_span(histogram, 0.5)
    observed_in_a_span(histogram, 0.6)
    slow = observed_in_a_span(histogram, 50)
    traces = named_traces(meters)
    assert (traces["1.0"], traces["+Inf"]) == (first, slow)
    now[0] += 1.0
    later = observed_in_a_span(histogram, 0.7)
    assert named_traces(meters)["1.0"] == later


def test_what_one_refresh_sets_is_read_together() -> None:
    meters = Meters()
    pair = [meters.gauge(f"toy_{name}", "Of a pair.") for name in ("first", "second")]
    turns = itertools.count(1)
    is_over = threading.Event()

    def refresh() -> None:
        turn = next(turns)
        for gauge in pair:
            gauge.set(turn)

    meters.before_reading(refresh)

    def read_on() -> None:
        while not is_over.is_set():
            meters.read()

    others = [threading.Thread(target=read_on) for _ in range(4)]
    for other in others:
        other.start()
    try:
        for _ in range(100):
            seen = read(meters)
            assert seen.value("toy_first") == seen.value("toy_second") > 0
    finally:
        is_over.set()
        for other in others:
            other.join()


def test_series_of_labels_that_are_known_are_there_before_the_first_event() -> None:
    meters = Meters()
    meters.counter("toy_seen_total", "Seen.", Label("kind", ("new", "old")))
    meters.histogram("toy_seconds", "Took.", Label("a", ("x",)), Label("b", ("y", "z")), buckets=Buckets((1.0,), "one"))
    meters.counter("toy_named_total", "Named.", "name", Label("kind", ("new",)))
    text = meters.exposition()[0].decode()
    for line in ('toy_seen_total{kind="old"} 0.0', 'toy_seconds_count{a="x",b="z"} 0.0'):
        assert line in text
    assert "toy_named_total{" not in text
