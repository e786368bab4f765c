"""What the standard OTEL_ variables say of traces and of metrics: whether, where to, by which protocol, as whose."""

import os
import subprocess
import sys

import pytest

from kakeya_shared.rpc import otlp
from kakeya_shared.rpc.otlp import METRICS, TRACES, Signal

INSTANCE = "from kakeya_shared.rpc import otlp; print(otlp.resource('test').attributes['service.instance.id'])"


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("signal", "other"), [(TRACES, "METRICS"), (METRICS, "TRACES")])
def test_the_standard_variables_decide(signal: Signal, other: str) -> None:
    own, any_of_them = f"OTEL_EXPORTER_OTLP_{signal.name}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    url, exporter = "http://c:4317", f"OTEL_{signal.name}_EXPORTER"
    assert not signal.is_wanted({})
    assert signal.is_wanted({any_of_them: url})
    assert signal.is_wanted({own: url})
    assert not signal.is_wanted({f"OTEL_EXPORTER_OTLP_{other}_ENDPOINT": url})
    assert signal.is_wanted({exporter: "console,otlp"})
    assert not signal.is_wanted({exporter: "none", any_of_them: url})
    assert not signal.is_wanted({"OTEL_SDK_DISABLED": "True", any_of_them: url})


@pytest.mark.parametrize("signal", [TRACES, METRICS], ids=lambda signal: signal.name)
@pytest.mark.parametrize(
    ("endpoint", "protocol", "said"),
    [
        ("http://[x", "grpc", "_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT is not a URL: Invalid IPv6"),
        ("127.0.0.1:4318", "http/protobuf", "is not a URL of http/protobuf: '127.0.0.1:4318'"),
        ("http://c:4318", "http/json", "_PROTOCOL is 'http/json', and can be grpc or http/protobuf"),
    ],
)
def test_what_is_no_collector_is_said(
    monkeypatch: pytest.MonkeyPatch, signal: Signal, endpoint: str, protocol: str, said: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal.name}_PROTOCOL", protocol)
    with pytest.raises(ValueError, match=said):
        signal.check()
    monkeypatch.setenv(f"OTEL_{signal.name}_EXPORTER", "none")
    signal.check()


def test_only_a_collector_elsewhere_is_reached_through_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for url, is_here in (("http://localhost:4318", True), ("[::1]:4317", True), ("https://c.example:4317", False)):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        assert bool(TRACES.exporter_options()["channel_options"]) is is_here
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    assert METRICS.exporter_options()["session"].trust_env


def test_each_process_is_an_instance_of_one_service_and_an_operator_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (otlp.resource("test").attributes for _ in range(2))
    assert first == second
    assert first["service.name"] == "kakeya-test"
    elsewhere = subprocess.run([sys.executable, "-c", INSTANCE], check=True, capture_output=True, text=True)
    assert elsewhere.stdout.strip() not in ("", first["service.instance.id"])
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine,service.name=named")
    named = otlp.resource("test").attributes
    assert (named["service.instance.id"], named["service.name"]) == ("mine", "named")
