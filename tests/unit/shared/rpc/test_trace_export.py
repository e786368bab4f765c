"""Whether spans are exported, where to, by which protocol and as whose: by the standard variables."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from kakeya_shared.rpc import trace_export
from tests.otlp_over_http import HttpCollector, http_collector
from tests.refusing_proxy import refusing_proxy


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpCollector]:
    with http_collector() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        yield collector


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch) -> list[TracerProvider]:
    """What is configured; the process's own stays."""
    configured: list[TracerProvider] = []
    monkeypatch.setattr(trace, "set_tracer_provider", configured.append)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: configured[0])
    return configured


def test_configure_names_the_service_and_shut_down_ends_the_provider(
    monkeypatch: pytest.MonkeyPatch, providers: list[TracerProvider]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    trace_export.configure("test")
    assert providers[0].resource.attributes["service.name"] == "kakeya-test"
    trace_export.shut_down()


def test_spans_go_over_http_past_the_proxies_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, providers: list[TracerProvider], collector: HttpCollector
) -> None:
    with refusing_proxy(monkeypatch) as proxy:
        trace_export.configure("test")
        with providers[0].get_tracer("test").start_as_current_span("greeting"):
            pass
        trace_export.shut_down()
    assert ([path for path, _ in collector.received], collector.names) == (["/v1/traces"], ["greeting"])
    assert proxy.requests == []


def test_the_standard_sampler_says_how_many(
    monkeypatch: pytest.MonkeyPatch, providers: list[TracerProvider], collector: HttpCollector
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    trace_export.configure("test")
    with providers[0].get_tracer("test").start_as_current_span("greeting") as span:
        assert not span.is_recording()
    trace_export.shut_down()
    assert collector.received == []
