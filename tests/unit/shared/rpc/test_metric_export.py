"""Metrics as an OpenTelemetry collector gets them."""

import asyncio
import math

import pytest

from kakeya_shared.metrics.meters import Buckets, Meters
from kakeya_shared.rpc.metric_export import MetricExport
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.otlp_over_http import http_collector
from tests.refusing_proxy import refusing_proxy

SERVICE = "kakeya-toy"
CUMULATIVE = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE


def toy() -> Meters:
    meters = Meters()
    meters.counter("toy_seen_tokens_total", "Seen.", "kind", unit="tokens").labels("new").inc(3)
    meters.gauge("toy_held_bytes", "Held.", unit="bytes").set(7)
    meters.gauge("toy_unknown", "Not known.").set(math.nan)
    histogram = meters.histogram("toy_wait_seconds", "Waited.", "got", buckets=Buckets((0.1, 1.0), "two"))
    for got, seconds in (("lane", 0.05), ("lane", 0.5), ("lane", 0.6), ("lane", 7), ("none", 7)):
        histogram.labels(got).observe(seconds)
    meters.histogram("toy_never_seconds", "Never.", "got", buckets=Buckets((1.0,), "one"))
    return meters


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OTEL_METRICS_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def told_of(receiver: OtlpReceiver, told: pytest.MonkeyPatch) -> None:
    for name, value in receiver.environment().items():
        told.setenv(name, value)


async def test_what_is_shown_is_sent(told: pytest.MonkeyPatch) -> None:
    with otlp_receiver() as receiver:
        told_of(receiver, told)
        async with MetricExport(toy(), "toy"):
            pass  # an hour is not waited for: what there is, is sent at the end
        latest = receiver.metrics.latest
    (seen,) = latest[SERVICE, "toy_seen_tokens"].sum.data_points
    assert (seen.as_double, seen.attributes[0].key, seen.attributes[0].value.string_value) == (3, "kind", "new")
    total = latest[SERVICE, "toy_seen_tokens"].sum
    assert (total.is_monotonic, total.aggregation_temporality) == (True, CUMULATIVE)
    assert 0 < seen.start_time_unix_nano < seen.time_unix_nano
    held = latest[SERVICE, "toy_held_bytes"]
    assert (held.unit, held.description, [each.as_double for each in held.gauge.data_points]) == ("By", "Held.", [7])
    assert (SERVICE, "toy_unknown") not in latest
    assert (SERVICE, "toy_never_seconds") not in latest
    waits = latest[SERVICE, "toy_wait_seconds"]
    lane, none = waits.histogram.data_points
    assert (waits.unit, [*lane.explicit_bounds]) == ("s", [0.1, 1.0])
    assert (lane.count, [*lane.bucket_counts]) == (4, [1, 2, 1])
    assert lane.sum == pytest.approx(8.15)
    assert (none.count, [*none.bucket_counts]) == (1, [0, 0, 1])
    assert not lane.HasField("min")
    assert (SERVICE, "process_cpu_seconds") in latest


async def test_it_is_sent_again_and_again(told: pytest.MonkeyPatch) -> None:
    meters = Meters()
    gauge = meters.gauge("toy_held", "Held.")
    with otlp_receiver() as receiver:
        told_of(receiver, told)
        told.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
        told.setenv("OTEL_SERVICE_NAME", "mine")
        async with MetricExport(meters, "toy"), asyncio.timeout(60):
            for value in (1, 2):
                gauge.set(value)
                while _value(receiver) != value:
                    await asyncio.sleep(0.01)


def _value(receiver: OtlpReceiver) -> float | None:
    metric = receiver.metrics.latest.get(("mine", "toy_held"))
    return None if metric is None else metric.gauge.data_points[0].as_double


async def test_nothing_is_sent_unasked(told: pytest.MonkeyPatch) -> None:
    with otlp_receiver() as receiver:
        async with MetricExport(toy(), "toy"):
            pass
        assert receiver.metrics.latest == {}


async def test_it_is_sent_over_http_past_the_proxies_of_the_environment(told: pytest.MonkeyPatch) -> None:
    with http_collector() as collector, refusing_proxy(told) as proxy:
        for name, value in collector.environment.items():
            told.setenv(name, value)
        async with MetricExport(toy(), "toy"):
            pass
    assert {path for path, _ in collector.received} == {"/v1/metrics"}
    assert {"toy_seen_tokens", "toy_held_bytes", "toy_wait_seconds"} <= set(collector.metric_names)
    assert proxy.requests == []
