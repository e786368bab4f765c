"""A proxy of the environment: this machine is reached without it, and what goes through it is said."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from structlog.testing import capture_logs

from kakeya_shared import health_command
from kakeya_shared.rpc import proxies, trace_export
from kakeya_shared.rpc.tls import open_channel
from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1.runtime_pb2_grpc import RuntimeServiceStub
from tests.refusing_proxy import RefusingProxy, refusing_proxy
from tests.unit.shared.toy_service import serving

HTTP = "http://proxy:3128"
CASES = [
    ("example.com:1", {}, ""),
    ("example.com:1", {"http_proxy": HTTP}, "http_proxy"),
    ("example.com:1", {"http_proxy": HTTP, "grpc_proxy": HTTP, "https_proxy": HTTP}, "grpc_proxy"),
    ("example.com:1", {"http_proxy": HTTP, "https_proxy": ""}, ""),
    ("example.com:1", {"http_proxy": "socks5://proxy:1"}, ""),
    ("example.com:1", {"HTTP_PROXY": HTTP, "all_proxy": HTTP}, ""),
    ("example.com:1", {"http_proxy": HTTP, "no_proxy": ".org, EXAMPLE.com"}, ""),
    ("example.com:1", {"http_proxy": HTTP, "no_proxy": "example.com", "no_grpc_proxy": "else"}, "http_proxy"),
    ("10.1.2.3:1", {"http_proxy": HTTP, "no_proxy": "10.0.0.0/8"}, ""),
    ("10.1.2.3:1", {"http_proxy": HTTP, "no_proxy": "11.0.0.0/8,example.com"}, "http_proxy"),
    ("[2001:db8::1]:1", {"http_proxy": HTTP}, "http_proxy"),
    ("127.0.0.1:1", {"http_proxy": HTTP}, ""),
    ("[::1]:1", {"http_proxy": HTTP}, ""),
    ("localhost:1", {"http_proxy": HTTP}, ""),
    ("unix:/run/kakeya.sock", {"http_proxy": HTTP}, ""),
]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[RefusingProxy]:
    with refusing_proxy(monkeypatch) as proxy:
        yield proxy


@pytest.mark.parametrize(("address", "environment", "variable"), CASES)
def test_the_variable_is_found_as_grpc_finds_it(address: str, environment: dict[str, str], variable: str) -> None:
    assert proxies.variable(address, environment) == variable


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"no_proxy": "10.1.2.3"}),
        ({"no_proxy": "a,b"}, {"no_proxy": "a,b,10.1.2.3"}),
        ({"no_proxy": "a", "no_grpc_proxy": "b"}, {"no_grpc_proxy": "b,10.1.2.3"}),
    ],
)
def test_an_exception_is_added_where_grpc_looks(environment: dict[str, str], expected: dict[str, str]) -> None:
    assert proxies.with_exception("10.1.2.3", environment) == expected
    assert proxies.variable("10.1.2.3:1", {"http_proxy": HTTP} | environment | expected) == ""


async def _status(address: str) -> str:
    async with open_channel(address, None) as channel:
        stub: Any = RuntimeServiceStub(channel)
        try:
            await stub.CloseSession(pb.CloseSessionRequest(), timeout=60)
        except grpc.aio.AioRpcError as error:
            return error.code().name
    return "OK"


async def test_services_reach_this_machine_past_the_proxy(proxy: RefusingProxy) -> None:
    with capture_logs() as logs:
        async with serving() as (server, _):
            assert await _status(server.address) != "UNAVAILABLE"
            await server.set_serving(True)
            assert await asyncio.to_thread(health_command.main, [server.address]) == 0
    assert (proxy.requests, [log for log in logs if "proxy" in log["event"]]) == ([], [])


async def test_a_service_says_that_its_way_goes_through_a_proxy(proxy: RefusingProxy) -> None:
    with capture_logs() as logs:
        assert await _status("router.invalid:1") == "UNAVAILABLE"
    assert [(log["event"], log["address"]) for log in logs] == [
        ("this way goes through the proxy of $https_proxy; no_proxy lists what does not", "router.invalid:1")
    ]
    assert proxy.requests[0].startswith("CONNECT router.invalid:1 ")


def test_a_health_check_names_the_proxy(proxy: RefusingProxy, capsys: pytest.CaptureFixture[str]) -> None:
    assert health_command.main(["router.invalid:1", "--timeout-seconds", "30"]) == 1
    assert "UNAVAILABLE (through the proxy of $https_proxy; no_proxy lists" in capsys.readouterr().err


def test_a_health_check_of_an_address_that_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert health_command.main(["a\udcff:1"]) == 2
    assert capsys.readouterr().err == "kakeya health: error: 'a\\udcff:1' is not HOST:PORT\n"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """An OTLP receiver."""

    def __init__(self) -> None:
        self.num_exports = 0

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.num_exports += 1
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.mark.parametrize("endpoint", ["http://localhost:{}", "127.0.0.1:{}"])
def test_spans_reach_a_collector_here_past_the_proxy(
    proxy: RefusingProxy, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(max_workers=2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.format(port))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
    providers: list[Any] = []
    monkeypatch.setattr(trace, "set_tracer_provider", providers.append)
    trace_export.configure("test")
    with providers[0].get_tracer("test").start_as_current_span("greeting"):
        pass
    providers[0].shutdown()
    server.stop(0).wait()
    assert (collector.num_exports, proxy.requests) == (1, [])
