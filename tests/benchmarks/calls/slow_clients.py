"""Token latency of a client that reads, alone and beside clients that do not.

Rounds alternate on one runtime: (a) the client alone; (b) beside streams that are never read, streams that are read a
token a second, streams whose connection is frozen (half-open: nothing comes back, nothing is closed), and a thousand
idle connections. Each (b) begins once the streams that nobody reads stand still. Their connections take in as little
unread as those of our SDK: by gRPC's own measure a client takes in some hundred thousand tokens, and so reads.

Exits with 1 when the 95th percentile of the time between two tokens is over 1.2 times as long in (b) as in (a).
"""

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from typing import Any

import grpc

from kakeya._transport._channel import OPTIONS
from kakeya_bench.report.verdict import at_most
from kakeya_bench.statistics.distribution import percentile
from kakeya_shared.settings.service import setting
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.freezable_link import FreezableLink
from tests.integration.processes import runtime
from tests.random_checkpoint import save_random_checkpoint

RATIO_BOUND = 1.2
ROUND_SECONDS = 8.0
NUM_UNREAD, NUM_SLOW, NUM_FROZEN, NUM_IDLE = 8, 4, 4, 1_000
NUM_LANES = 2 + NUM_UNREAD + NUM_SLOW + NUM_FROZEN
_TOKENS_A_STREAM = 200
_SLOW_SECONDS = 1.0
_SETTLE_SECONDS = 40.0
_UNBOUNDED_TOKENS = 60_000
# HTTP/2: the client's preface and an empty SETTINGS frame; whoever stops there has an idle connection.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


class SlowClientsSettings(BenchSettings):
    rounds: int = setting(4, "rounds, each alone and beside", reason="five minutes", metavar="N", ge=1)


async def gaps(address: str, seconds: float) -> list[float]:
    """Seconds between two tokens, of streams one after the other."""
    found: list[float] = []
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = runtime_pb2_grpc.RuntimeServiceStub(channel)
        session_id = await _open(stub)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            call = stub.Generate(api.GenerateRequest(session_id=session_id, max_tokens=_TOKENS_A_STREAM))
            last: float | None = None
            async for answer in call:
                now = time.perf_counter()
                if answer.HasField("token_id"):
                    found += [now - last] if last is not None else []
                    last = now
        await stub.CloseSession(api.CloseSessionRequest(session_id=session_id))
    return found


@asynccontextmanager
async def slow_clients(address: str) -> AsyncIterator[float]:
    """All of them at once; yields the seconds that it took until the streams that nobody reads stand still."""
    async with AsyncExitStack() as stack:
        host, _, port = address.rpartition(":")
        for _ in range(NUM_IDLE):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(_PREFACE)
            stack.callback(writer.transport.abort)
        stub = await _stub(stack, address)
        unread = [(await _stream(stack, stub, stub))[0] for _ in range(NUM_UNREAD)]
        for _ in range(NUM_SLOW):
            _, call = await _stream(stack, stub, stub)
            stack.callback(asyncio.create_task(_read_slowly(call)).cancel)
        link = await stack.enter_async_context(FreezableLink(address))
        frozen = await _stub(stack, link.address)
        for _ in range(NUM_FROZEN):
            await _stream(stack, frozen, stub)
        link.freeze()
        yield await _settled(stub, unread)


async def _stub(stack: AsyncExitStack, address: str) -> Any:
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=OPTIONS))
    return runtime_pb2_grpc.RuntimeServiceStub(channel)


async def _stream(stack: AsyncExitStack, stub: Any, closing: Any) -> tuple[str, Any]:
    """Begins a stream without an end, of a session of its own, which is closed by a connection that is not frozen."""
    session_id = await _open(stub)
    stack.push_async_callback(closing.CloseSession, api.CloseSessionRequest(session_id=session_id))
    call = stub.Generate(api.GenerateRequest(session_id=session_id, max_tokens=_UNBOUNDED_TOKENS))
    stack.callback(call.cancel)
    await call.initial_metadata()
    return session_id, call


async def _read_slowly(call: Any) -> None:
    async for _ in call:
        await asyncio.sleep(_SLOW_SECONDS)


async def _settled(stub: Any, session_ids: Sequence[str]) -> float:
    started, lengths = time.monotonic(), await _lengths(stub, session_ids)
    while time.monotonic() - started < _SETTLE_SECONDS:
        await asyncio.sleep(1.0)
        before, lengths = lengths, await _lengths(stub, session_ids)
        if lengths == before:
            break
    return time.monotonic() - started


async def _lengths(stub: Any, session_ids: Sequence[str]) -> list[tuple[int, int]]:
    infos = [await stub.GetSessionInfo(api.GetSessionInfoRequest(session_id=name)) for name in session_ids]
    return [(info.kv_live_bytes, info.history_length) for info in infos]


async def _open(stub: Any) -> str:
    created = await stub.CreateSession(api.CreateSessionRequest())
    session_id = str(created.session_id)
    await stub.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=range(64)))
    return session_id


async def rounds(address: str, num_rounds: int, stage: Stage) -> dict[str, Any]:
    found: dict[str, list[list[float]]] = {"alone": [], "beside": []}
    settled: list[float] = []
    step = stage.steps(2 * num_rounds)
    await gaps(address, 1.0)  # warm
    for _ in range(num_rounds):
        found["alone"].append(await gaps(address, ROUND_SECONDS))
        step("beside slow clients")
        async with slow_clients(address) as seconds:
            settled.append(seconds)
            found["beside"].append(await gaps(address, ROUND_SECONDS))
        step("alone")
    return {name: [_percentiles(each) for each in taken] for name, taken in found.items()} | {
        "all": {name: _percentiles([*chain(*taken)]) for name, taken in found.items()},
        "settle_seconds": [round(seconds, 1) for seconds in settled],
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    p50, p95 = (round(percentile(seconds, percent) * 1e3, 3) for percent in (50, 95))
    return {"p50_ms": p50, "p95_ms": p95, "tokens": len(seconds)}


def _allow_connections() -> None:
    """This process and those it starts hold as many sockets as the host lets them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@bench.command(SlowClientsSettings)
def measure(settings: SlowClientsSettings, stage: Stage) -> Found:
    _allow_connections()
    model = save_random_checkpoint(stage.directory / "random")
    with runtime(model, stage.directory, num_workers=0) as made:
        made.start_worker(lanes=NUM_LANES)
        made.wait_for_workers(1)
        facts = asyncio.run(rounds(made.address, settings.rounds, stage))
    facts["ratio"] = facts["all"]["beside"]["p95_ms"] / facts["all"]["alone"]["p95_ms"]
    beside = f"{NUM_UNREAD} unread, {NUM_SLOW} slow and {NUM_FROZEN} frozen streams and {NUM_IDLE:,} idle connections"
    return facts, [at_most("slow clients", f"p95 beside {beside} to p95 alone:", facts["ratio"], RATIO_BOUND)]
