"""A router and its workers in this process, over real sockets and a real Redis.

What recurs, recurs fast. What lapses does not, however busy the machine is: a test that is about a lapse has it come
about (lapses.py, `FakeWorker.lapse`), or waits for one that is short.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import grpc
import redis.asyncio
import structlog.testing

from kakeya_router.program import Router
from kakeya_router.settings import RouterSettings
from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_stubs.admin.v1 import admin_pb2, admin_pb2_grpc
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from kakeya_stubs.worker.v1 import registry_pb2, registry_pb2_grpc
from tests.read_once import read_once
from tests.scrape import Exposition, scrape
from tests.unit.router.fake_worker import FakeWorker

T = TypeVar("T")

LONG_SECONDS = 60.0
"""Longer than a busy machine holds a process up for."""

FAST: dict[str, Any] = {
    "bind": "127.0.0.1:0",
    "metrics_bind": "none",
    "tunnel_bind": "none",
    "redis_timeout_seconds": LONG_SECONDS,
    "reap_interval_seconds": 0.05,
    "heartbeat_interval_seconds": 0.1,
    "worker_lease_seconds": LONG_SECONDS,
    "worker_silence_seconds": LONG_SECONDS,
    "operation_lease_seconds": LONG_SECONDS,
    "lost_retention_seconds": LONG_SECONDS,
    "shutdown_grace_seconds": 0.5,
    "admission": "reject",
    "max_generate_tokens": 1_000_000,  # some tests want a Generate that does not end
}

METRICS_ON = {"metrics_bind": "127.0.0.1:0"}

FORGETFUL: dict[str, Any] = {"max_append_tokens": 2, "journal_tokens": 1}
"""Of a router that cannot restore a session of more than two tokens without a snapshot."""


async def answer(call: Awaitable[T]) -> T:
    """The answer, or the tree's error that came over the wire."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raised = error_details.decode(error)
        if raised is None:
            raise
        raise raised from error


async def eventually(condition: Callable[[], Awaitable[Any]], timeout_seconds: float = LONG_SECONDS) -> Any:
    """Waits until `condition()` is true and returns what it was."""
    async with asyncio.timeout(timeout_seconds):
        while True:
            result = await condition()
            if result:
                return result
            await asyncio.sleep(0.01)


async def _has_looked(router: Router) -> bool:
    """One with a short time-out may look several times, on a busy machine."""
    try:
        await router._parts.base.fleet.look()
    except StoreUnavailable:
        return False
    return True


async def leave(call: Any, rpc: str) -> None:
    """Cancels a call, and waits until its router has ended it: whatever the test does next comes after that."""
    ended = {"event": "call", "status": "CANCELLED"}

    async def is_ended() -> bool:
        return any(line["method"].endswith(f"/{rpc}") for line in lines if ended.items() <= line.items())

    with structlog.testing.capture_logs() as lines:
        call.cancel()
        await eventually(is_ended)


class Showing:
    """A stub that shows a secret with each call. An interceptor would replace the call objects."""

    def __init__(self, stub: Any, secret: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {secret}"),) if secret else ()

    def __getattr__(self, rpc: str) -> Any:
        return partial(getattr(self._stub, rpc), metadata=self._metadata)


class Client:
    """The public API of one router, errors decoded; `secret` is a key or a join token, "" shows none."""

    def __init__(self, address: str, secret: str = "") -> None:
        self.address = address
        self.secret = secret
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.runtime: Any = Showing(runtime_pb2_grpc.RuntimeServiceStub(self.channel), secret)
        self.registry: Any = Showing(registry_pb2_grpc.RegistryServiceStub(self.channel), secret)
        self.admin: Any = Showing(admin_pb2_grpc.AdminServiceStub(self.channel), secret)

    async def create(self, **fields: Any) -> api.CreateSessionResponse:
        return await answer(self.runtime.CreateSession(api.CreateSessionRequest(**fields)))

    async def session(self, **fields: Any) -> str:
        return (await self.create(**fields)).session_id

    async def append(self, session_id: str, token_ids: Any, **fields: Any) -> api.AppendTokensResponse:
        request = api.AppendTokensRequest(session_id=session_id, token_ids=token_ids, **fields)
        return await answer(self.runtime.AppendTokens(request))

    def generating(self, session_id: str, max_tokens: int = 4, *, timeout: float | None = None, **fields: Any) -> Any:
        request = api.GenerateRequest(session_id=session_id, max_tokens=max_tokens, **fields)
        return self.runtime.Generate(request, timeout=timeout)

    async def generate(self, session_id: str, max_tokens: int = 4, **fields: Any) -> list[api.GenerateResponse]:
        call = self.generating(session_id, max_tokens, **fields)
        return await answer(_all(call))

    def turning(self, request: api.TurnRequest, *, timeout: float | None = None) -> Any:
        return self.runtime.Turn(request, timeout=timeout)

    async def turn(self, request: api.TurnRequest) -> "Turned":
        return Turned(await answer(_all(self.turning(request))))

    async def close(self, session_id: str) -> int:
        response = await answer(self.runtime.CloseSession(api.CloseSessionRequest(session_id=session_id)))
        return int(response.final_history_length)

    async def rewind(self, session_id: str, target_length: int, **fields: Any) -> api.RewindSessionResponse:
        request = api.RewindSessionRequest(session_id=session_id, target_length=target_length, **fields)
        return await answer(self.runtime.RewindSession(request))

    async def park(self, session_id: str) -> api.ParkSessionResponse:
        return await answer(self.runtime.ParkSession(api.ParkSessionRequest(session_id=session_id)))

    async def tag(self, session_id: str, kind: str, length: int, *tags: bytes, op_id: str = "") -> None:
        place = api.HistoryPlace(kind=api.PlaceKind.Value(f"PLACE_KIND_{kind}"), history_length=length)
        request = api.TagTurnRequest(session_id=session_id, place=place, tags=tags, op_id=op_id)
        await answer(self.runtime.TagTurn(request))

    async def find(self, *tags: bytes, model: str = "", session_id: str = "") -> api.FindSessionResponse:
        request = api.FindSessionRequest(tags=tags, model=model, session_id=session_id)
        return await answer(self.runtime.FindSession(request))

    async def info(self, session_id: str) -> api.GetSessionInfoResponse:
        return await answer(self.runtime.GetSessionInfo(api.GetSessionInfoRequest(session_id=session_id)))

    async def workers(self) -> dict[str, admin_pb2.WorkerStatus]:
        response = await answer(self.admin.ListWorkers(admin_pb2.ListWorkersRequest()))
        return {worker.worker_id: worker for worker in response.workers}

    async def drain(self, worker_id: str, **fields: Any) -> admin_pb2.WorkerStatus:
        request = admin_pb2.DrainWorkerRequest(worker_id=worker_id, **fields)
        return (await answer(self.admin.DrainWorker(request))).worker

    async def join(self, worker: FakeWorker) -> registry_pb2.JoinResponse:
        return await answer(self.registry.Join(worker.join_request()))

    async def beat(self, worker: FakeWorker, *, complete: bool = True) -> registry_pb2.HeartbeatResponse:
        return await answer(self.registry.Heartbeat(worker.heartbeat_request(complete=complete)))


async def _all(call: Any) -> list[Any]:
    return [response async for response in call]


def turn_request(
    session_id: str = "",
    token_ids: Iterable[int] = (),
    max_tokens: int = 4,
    *,
    create: Mapping[str, Any] | None = None,
    boundary: int | None = None,
    expected: int | None = None,
    request_id: str = "",
    close: bool = False,
    **generate: Any,
) -> api.TurnRequest:
    """In a session, or without one in a new one; its tokens come in two spans."""
    given = [*token_ids]
    place = api.TurnPlace(
        session_id=session_id, boundary=boundary, request_id=request_id, expected_history_length=expected
    )
    return api.TurnRequest(
        session=place if create is None else None,
        create=None if create is None else api.CreateSessionRequest(**create),
        spans=[api.TokenSpan(token_ids=each) for each in (given[:1], given[1:]) if given],
        generate=api.GenerateRequest(max_tokens=max_tokens, **generate),
        close=close,
    )


class Turned:
    """The events of a Turn, which come in their order."""

    def __init__(self, events: Sequence[api.TurnResponse]) -> None:
        kinds = [event.WhichOneof("event") for event in events]
        assert kinds == ["session", "appended", *["generated"] * (len(events) - 2)]
        self.session, self.appended = events[0].session, events[1].appended
        self.generated = [event.generated for event in events[2:]]
        payloads = [["truncated", "token_id", "done"].index(str(each.WhichOneof("payload"))) for each in self.generated]
        assert payloads == sorted(payloads)
        self.done = self.generated[-1].done

    @property
    def token_ids(self) -> list[int]:
        return [each.token_id for each in self.generated if each.HasField("token_id")]


class Stack:
    """Starts routers and workers on one Redis."""

    def __init__(self, url: str, exits: AsyncExitStack) -> None:
        self.url = url
        self.redis: Any = redis.asyncio.Redis.from_url(url, decode_responses=True, protocol=2)
        self.routers: list[Router] = []
        self._exits = exits
        self._routers = AsyncExitStack()

    async def router(self, **settings: Any) -> Client:
        """Starts a further router; returns its client."""
        told = read_once(RouterSettings, **({"redis": self.url} | FAST | settings))
        router = await self._routers.enter_async_context(Router(told))
        self.routers.append(router)
        return self.client(router.address)

    def client(self, address: str, secret: str = "") -> Client:
        """A further client of a router, with this key or join token."""
        client = Client(address, secret)
        self._exits.push_async_callback(client.channel.close)
        return client

    async def scrape(self, router: int = 0) -> Exposition:
        """What a router shows that was told `METRICS_ON`."""
        return await asyncio.to_thread(scrape, self.routers[router].metrics_address)

    async def stop_routers(self) -> None:
        await self._routers.aclose()

    async def worker(
        self, client: Client, worker_id: str = "worker-a", *, beating: bool = True, **fields: Any
    ) -> FakeWorker:
        worker = await self._exits.enter_async_context(FakeWorker(worker_id, **fields))
        worker.leases = self.redis
        await client.join(worker)
        for router in self.routers:  # which would see it within a second
            await eventually(partial(_has_looked, router))
        if beating:
            worker.keep_beating(client.registry)
        return worker

    async def keys(self, pattern: str = "*") -> set[str]:
        return {key async for key in self.redis.scan_iter(pattern)}

    async def session_keys(self) -> set[str]:
        """What sessions leave in Redis; nothing, once they are closed."""
        return {
            key
            for key in await self.keys()
            if ":worker" not in key and not key.startswith(("kakeya:pools", "kakeya:routers", "kakeya:schema"))
        }


@asynccontextmanager
async def stack_on(url: str) -> AsyncIterator[Stack]:
    async with AsyncExitStack() as exits:
        stack = Stack(url, exits)
        exits.push_async_callback(stack.redis.aclose)
        exits.push_async_callback(stack.stop_routers)
        yield stack


async def has_snapshot(stack: Stack, session_id: str, length: int) -> bool:
    """Whether a session of the pool "tiny" can be had from a snapshot at a length."""
    listed = await stack.redis.hget(f"kakeya:{{tiny}}:session:{session_id}", "snapshots")
    return f",{length}," in (listed or "")


def unknown_id(session_id: str) -> str:
    """One of the same form and pool that no session has: it differs in the last letter but one."""
    letter = "A" if session_id[-2] == "B" else "B"
    return f"{session_id[:-2]}{letter}A"


async def begin_ahead(stack: Stack, session_id: str) -> None:
    """As where a Generate runs: the lane may be ahead of what is journaled."""
    await stack.redis.hset(
        f"kakeya:{{tiny}}:op:{session_id}", mapping={"claim": "a", "kind": "generate", "lease_until_ms": 1 << 50}
    )


async def written_session(stack: Stack, client: Client) -> str:
    """A session of three turns, 105 tokens, with a snapshot after each: its journal does not reach back to 0."""
    session_id = await client.session()
    for length in (35, 70, 105):
        await client.append(session_id, range(30))
        await client.generate(session_id, 5)
        await eventually(lambda: has_snapshot(stack, session_id, length))  # noqa: B023  # awaited at once
    return session_id
