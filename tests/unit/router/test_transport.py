"""The router at the end of a wire: nonsense, vanished clients, crowds, TLS to clients and to workers."""

import os
from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya_router.access import callers
from kakeya_router.access.callers import Caller
from kakeya_router.api.call_gate import CallGate
from kakeya_router.contract.generates import Done
from kakeya_router.program import Router
from kakeya_router.settings import RouterSettings
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerUnreachable
from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import InvalidField, OperationRunning, TooManyCalls
from kakeya_shared.process.service_process import StartError
from kakeya_shared.rpc.tls import ClientTls
from kakeya_shared.settings.service import RpcServerSettings
from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2
from kakeya_stubs.worker.v1 import registry_pb2
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api
from tests.certificates import Authority, Pair
from tests.freezable_link import FreezableLink
from tests.unit.router.fake_worker import FakeWorker, Lane, generate
from tests.unit.router.stack import Client, Stack, eventually

SERVICES = [
    file.services_by_name[name]
    for file, name in (
        (runtime_pb2.DESCRIPTOR, "RuntimeService"),
        (admin_pb2.DESCRIPTOR, "AdminService"),
        (registry_pb2.DESCRIPTOR, "RegistryService"),
    )
]
METHODS = [(service.full_name, method) for service in SERVICES for method in service.methods]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_what_is_no_protobuf_is_an_invalid_request_of_every_rpc(client: Client) -> None:
    for service, method in METHODS:
        kinds = {(True, True): "stream_stream", (False, True): "unary_stream", (False, False): "unary_unary"}
        kind: Any = getattr(client.channel, kinds[method.client_streaming, method.server_streaming])
        request = iter([b"\xff\xff\xff"]) if method.client_streaming else b"\xff\xff\xff"
        call = kind(f"/{service}/{method.name}")(request, timeout=60)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call.read() if method.server_streaming else call)
        error = error_details.decode(caught.value)
        assert isinstance(error, InvalidField), method.name
        assert error.metadata == {"field": "request"}


async def test_a_client_that_vanished_leaves_its_session_free(stack: Stack) -> None:
    # The lease is long: the session must be free because the client is seen to be gone.
    direct = await stack.router(keepalive_seconds=1, keepalive_timeout_seconds=2, operation_lease_seconds=30)
    worker = await stack.worker(direct)
    session_id = await direct.session()
    await direct.append(session_id, [1])
    async with FreezableLink(direct.address) as link:
        behind = Client(link.address)
        async with behind.channel:
            worker.pause_in = 1  # or it would end by itself
            generating = behind.generating(session_id, 10**4)
            await generating.read()
            with pytest.raises(OperationRunning):
                await direct.append(session_id, [2])
            link.freeze()

            async def free() -> bool:
                try:
                    return bool(await direct.append(session_id, []))
                except OperationRunning:
                    return False

            await eventually(free)
    assert worker.calls["Stop"] == 1


async def test_so_many_calls_and_no_more_are_inside() -> None:
    gate = CallGate(max_calls=2, max_calls_per_tenant=1)
    callers.enter(Caller("a"))
    with gate.inside():
        with pytest.raises(TooManyCalls) as refused, gate.inside():
            pass
        assert "tenant a" in refused.value.message
        assert (refused.value.metadata["limit"], refused.value.retry_after_seconds) == ("1", 1.0)
        with gate.inside(frees=True):  # closing a session is how one gets below the limit
            pass
        callers.enter(Caller("b"))
        with gate.inside():
            callers.enter(Caller("c"))
            with pytest.raises(TooManyCalls, match="limit of this router is 2"), gate.inside():
                pass
    with gate.inside():
        pass
    callers.enter(callers.ANYBODY)
    with gate.inside(), gate.inside():  # without keys there are no tenants to be told apart
        pass


async def test_a_call_over_the_limit_is_told_when_to_come_again(stack: Stack) -> None:
    client = await stack.router(max_calls=1)
    worker = await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, [1])
    worker.flowing.clear()
    generating = client.generating(session_id, 3)
    await eventually(lambda: _generates(worker))
    with pytest.raises(TooManyCalls) as refused:
        await client.info(session_id)
    assert refused.value.retry_after_seconds == 1.0
    worker.flowing.set()
    assert len([response async for response in generating]) == 4
    await client.info(session_id)


async def test_no_limit_keeps_a_session_from_being_closed(stack: Stack) -> None:
    client = await stack.router(max_calls=1)
    worker = await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, [1])
    worker.flowing.clear()
    generating = client.generating(session_id, 3)
    await eventually(lambda: _generates(worker))
    assert await client.close(session_id) == 1
    with pytest.raises(grpc.aio.AioRpcError):
        await generating.read()


async def _generates(worker: FakeWorker) -> bool:
    return worker.calls["Generate"] == 1


def test_the_longest_append_fits_a_message() -> None:
    with pytest.raises(ValueError, match="--max-append-tokens 65536 needs --max-message-bytes of at least 331776"):
        RouterSettings(max_message_bytes=1 << 16)
    assert RouterSettings(max_message_bytes=331_776).max_append_tokens == 65_536


def test_tls_files_that_cannot_be_used_end_the_start(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"nowhere\.pem: No such file"):
        Router(RouterSettings(worker_ca=tmp_path / "nowhere.pem"))


async def test_a_bad_certificate_ends_the_start(authority: Authority, redis_url: str) -> None:
    one, two = authority.pair("one"), authority.pair("two")
    told = RouterSettings(redis=redis_url, bind="127.0.0.1:0", tls_cert=one.cert, tls_key=two.key)
    with pytest.raises(StartError, match="no certificate with its key"):
        async with Router(told):
            pass


def _asking(pair: Pair, authority: Authority) -> RpcServerSettings:
    return RpcServerSettings.model_construct(tls_cert=pair.cert, tls_key=pair.key, tls_client_ca=authority.path)


async def _length(clients: WorkerClients, worker: FakeWorker) -> int:
    """The length of a history after one more token, generated on the connection of now."""
    lane = worker.lanes.setdefault("s", Lane(1, 4, 16, refuses=False))
    stream = generate(clients.at(worker.address), "s", 1, history_length=len(lane.token_ids), timeout=60)
    responses = [response async for response in stream]
    done = responses[-1]
    assert isinstance(done, Done)
    return done.lane.history_length


async def test_a_worker_is_called_with_the_certificate_of_now(authority: Authority) -> None:
    first = authority.pair("first")
    tls = ClientTls(authority.path, first.cert, first.key)
    async with FakeWorker(settings=_asking(authority.pair("worker"), authority)) as worker:
        worker.lanes["t"] = Lane(1, 4, 16, refuses=False)
        clients = WorkerClients(tls)
        assert await _length(clients, worker) == 1
        before = clients.at(worker.address)
        stream = generate(before, "t", 100)
        await anext(stream)
        second = authority.pair("second")
        os.replace(second.cert, first.cert)
        os.replace(second.key, first.key)
        assert await _length(clients, worker) == 2
        assert clients.at(worker.address) is not before
        await clients.retain()  # a stream still runs on the old channel
        assert len([response async for response in stream]) == 100
        await clients.retain()
        with pytest.raises(WorkerUnreachable, match="closed"):
            await anext(generate(before, "t", 100))
        assert await _length(clients, worker) == 3
        await clients.aclose()


class LeavingWorker(FakeWorker):
    """Resets calls, as gRPC does with those that come in while it shuts down."""

    async def Generate(self, request: worker_api.GenerateRequest, context: Any) -> Any:
        await context.abort(grpc.StatusCode.CANCELLED)
        yield


async def test_a_call_that_a_leaving_worker_resets_is_one_to_a_worker_that_is_gone() -> None:
    async with LeavingWorker() as worker:
        clients = WorkerClients()
        with pytest.raises(WorkerUnreachable):
            await _length(clients, worker)
        await clients.aclose()


async def test_a_worker_that_asks_for_certificates_knows_no_others(authority: Authority, tmp_path: Path) -> None:
    async with FakeWorker(settings=_asking(authority.pair("worker"), authority)) as worker:
        (tmp_path / "stranger").mkdir()
        stranger = Authority(tmp_path / "stranger").pair("stranger")
        for tls in (None, ClientTls(authority.path), ClientTls(authority.path, stranger.cert, stranger.key)):
            clients = WorkerClients(tls)
            with pytest.raises(WorkerUnreachable):
                await _length(clients, worker)
            await clients.aclose()
    assert not worker.calls
