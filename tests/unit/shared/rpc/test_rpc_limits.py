"""What a server puts up with: nonsense, oversize, half-open connections, crowds; and what it says aloud."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import InvalidField, Unauthenticated
from kakeya_shared.rpc.server import RpcServer
from kakeya_shared.rpc.tracing import Metadata
from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1.runtime_pb2_grpc import RuntimeServiceStub, add_RuntimeServiceServicer_to_server
from tests.freezable_link import FreezableLink
from tests.service_logs import beside_calls
from tests.unit.shared import raw_http2
from tests.unit.shared.toy_service import SERVICE, Toy, serving

NO_PROTOBUF = b"\xff\xff\xff"
HEALTH = "grpc.health.v1.Health"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LIVELY: dict[str, Any] = {"keepalive_seconds": 1.0, "keepalive_timeout_seconds": 0.5}


def _raw(channel: Any, method: str) -> Any:
    """A call that sends and gets bytes."""
    kind = "stream_stream" if method == REFLECTION else "unary_stream" if _streams(method) else "unary_unary"
    return getattr(channel, kind)(method)


def _streams(method: str) -> bool:
    return method.endswith(("/Generate", "/Watch"))


async def _first(channel: Any, method: str, content: bytes) -> bytes:
    call = _raw(channel, method)
    if method == REFLECTION:
        return await call(iter([content]), timeout=60).read()
    return await (call(content, timeout=60).read() if _streams(method) else call(content, timeout=60))


async def _status(channel: Any, content: bytes, method: str = f"/{SERVICE}/CloseSession", **options: Any) -> str:
    try:
        await _raw(channel, method)(content, timeout=60, **options)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


@pytest.mark.parametrize(
    "method",
    [
        *(f"/{SERVICE}/{method.name}" for method in pb.DESCRIPTOR.services_by_name["RuntimeService"].methods),
        f"/{HEALTH}/Check",
        f"/{HEALTH}/List",
        f"/{HEALTH}/Watch",
        REFLECTION,
    ],
)
async def test_what_is_no_protobuf_is_an_invalid_request(method: str) -> None:
    async with serving() as (server, _), grpc.aio.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _first(channel, method, NO_PROTOBUF)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = error_details.decode(caught.value)
    assert isinstance(error, InvalidField)
    assert error.metadata == {"field": "request"}


async def test_health_and_reflection_answer_as_ever() -> None:
    async with serving() as (server, _), grpc.aio.insecure_channel(server.address) as channel:
        await server.set_serving(True)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == 1
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == 1
        await server.set_serving(False)
        assert (await watch.read()).status == 2
        watch.cancel()
        listed = await stub.List(health_pb2.HealthListRequest())
        assert {service: each.status for service, each in listed.statuses.items()} == {"": 2, SERVICE: 2}
        request = reflection_pb2.ServerReflectionRequest(list_services="*")
        answer = await _first(channel, REFLECTION, request.SerializeToString())
    services = reflection_pb2.ServerReflectionResponse.FromString(answer).list_services_response.service
    assert {service.name for service in services} == {SERVICE, HEALTH, "grpc.reflection.v1alpha.ServerReflection"}


async def test_a_guard_comes_before_the_request_is_looked_at() -> None:
    async def guard(method: str, metadata: Metadata) -> dict[str, str]:
        if ("authorization", "Bearer good") not in metadata:
            raise Unauthenticated(f"no key for {method}")
        return {}

    server = RpcServer("127.0.0.1:0", [SERVICE], grace_seconds=0, guard=guard)
    add_RuntimeServiceServicer_to_server(Toy(), server.grpc_server)
    good = (("authorization", "Bearer good"),)
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        assert await _status(channel, NO_PROTOBUF) == "UNAUTHENTICATED"
        assert await _status(channel, NO_PROTOBUF, metadata=good) == "INVALID_ARGUMENT"
        assert await _status(channel, b"", metadata=good) == "OK"
        stream: Any = RuntimeServiceStub(channel).Generate(pb.GenerateRequest(max_tokens=1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_of_who_is_refused_no_request_is_received() -> None:
    async def guard(method: str, metadata: Metadata) -> dict[str, str]:
        raise Unauthenticated("nobody")

    server = RpcServer("127.0.0.1:0", [SERVICE], grace_seconds=0, guard=guard)
    add_RuntimeServiceServicer_to_server(Toy(), server.grpc_server)
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        for method in ("CreateSession", "Generate"):
            call: Any = channel.stream_stream(f"/{SERVICE}/{method}")()  # and no message ever
            assert await asyncio.wait_for(call.code(), 60) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_crowd_is_answered_and_not_cancelled() -> None:
    async with serving() as (server, _), AsyncExitStack() as exits:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels: list[Any] = [
            await exits.enter_async_context(grpc.aio.insecure_channel(server.address, options)) for _ in range(3)
        ]
        calls = [channel.unary_unary(f"/{SERVICE}/CloseSession")(b"") for channel in channels for _ in range(1000)]
        assert {await call.code() for call in calls} == {grpc.StatusCode.OK}


async def test_messages_and_metadata_have_a_largest_size() -> None:
    request = pb.CloseSessionRequest(session_id="x" * 70_000).SerializeToString()
    async with (
        serving(max_message_bytes=65_536, max_metadata_bytes=4_096) as (server, _),
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        assert await _status(channel, request) == "RESOURCE_EXHAUSTED"
        assert await _status(channel, b"", metadata=(("x", "y" * 5_000),)) == "RESOURCE_EXHAUSTED"
        assert await _status(channel, request[:60_000].ljust(60_000, b"x")) == "INVALID_ARGUMENT"
        assert await _status(channel, b"", metadata=(("x", "y" * 3_000),)) == "OK"


@pytest.mark.parametrize(
    "metadata",
    [
        {b"traceparent": b"00-" + b"g" * 32 + b"-zz-01", b"tracestate": b"=,=,,=;\\"},
        {b"traceparent": b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01", b"tracestate": b"a=b," * 50},
        {b"traceparent-bin": b"/////w", b"authorization-bin": b"AA"},
        {b"traceparent-bin": b"no base64!", b"authorization-bin": b"\xff"},
        {b"baggage": b"%ff=%00;;;=" * 9},
        {b"authorization": b"\xff\xfe", b"traceparent": b"\x80\x01"},
        {b"authorization": b"Bearer \x00\x07", b"baggage": b"\xc3\x28=1"},
        {b"authorization": b"Bearer \xc3\xbc", b"traceparent": b"\xc3\xbc"},
    ],
)
async def test_hostile_metadata_does_no_harm(metadata: dict[bytes, bytes]) -> None:
    """By hand, since gRPC's own clients refuse to send most of it."""
    async with serving() as (server, _), grpc.aio.insecure_channel(server.address) as channel:
        with structlog.testing.capture_logs() as logs:
            assert await raw_http2.answer(server.address, f"/{SERVICE}/CloseSession", metadata)
        assert beside_calls(logs) == []
        assert await _status(channel, b"") == "OK"


async def test_a_client_that_vanished_in_a_call_is_noticed() -> None:
    async with (
        serving(**LIVELY) as (server, toy),
        FreezableLink(server.address) as link,
        grpc.aio.insecure_channel(link.address) as channel,
    ):
        stub: Any = RuntimeServiceStub(channel)
        stream = stub.Generate(pb.GenerateRequest(max_tokens=10**9))
        await stream.read()
        link.freeze()
        await asyncio.wait_for(toy.closed.wait(), 60)
        await asyncio.wait_for(link.hung_up.wait(), 60)


async def test_a_client_that_vanished_between_calls_is_noticed() -> None:
    async with (
        serving(**LIVELY) as (server, _),
        FreezableLink(server.address) as link,
        grpc.aio.insecure_channel(link.address) as channel,
    ):
        assert await _status(channel, b"") == "OK"
        link.freeze()
        await asyncio.wait_for(link.hung_up.wait(), 60)


async def test_a_connection_without_calls_is_closed_after_a_while() -> None:
    async with (
        serving(max_connection_idle_seconds=0.2) as (server, _),
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        assert await _status(channel, b"") == "OK"
        async with asyncio.timeout(60):
            while (state := channel.get_state()) is grpc.ChannelConnectivity.READY:
                await channel.wait_for_state_change(state)
        assert await _status(channel, b"") == "OK"


async def test_an_old_connection_is_left_for_another_and_no_call_notices() -> None:
    async with (
        serving(max_connection_age_seconds=0.1) as (server, toy),
        grpc.aio.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as channel,
    ):
        stub: Any = RuntimeServiceStub(channel)
        stream = stub.Generate(pb.GenerateRequest(max_tokens=10**9))
        await stream.read()
        async with asyncio.timeout(60):
            while len(toy.peers) < 5:
                assert await _status(channel, b"") == "OK"
        assert (await stream.read()).token_id > 0
        stream.cancel()


async def test_of_too_many_calls_on_a_connection_the_client_keeps_some_back() -> None:
    async with serving(max_concurrent_streams=1) as (server, _), grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = RuntimeServiceStub(channel)
        stream = stub.Generate(pb.GenerateRequest(max_tokens=10**9))
        await stream.read()
        waiting = asyncio.create_task(_status(channel, b""))
        other = grpc.aio.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)])
        async with other:
            assert await _status(other, b"") == "OK"
        assert not waiting.done()
        stream.cancel()
        assert await waiting == "OK"


async def test_open_doors_are_said_aloud_at_start() -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving(bind="0.0.0.0:0"):
            pass
    (line,) = [line for line in logs if line["log_level"] == "warning"]
    assert line["event"].startswith("plaintext outside loopback")
