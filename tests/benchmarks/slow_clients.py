"""Token latency of a client that reads, alone and beside clients that do not.

    python -m tests.benchmarks.slow_clients [--rounds N] [--json FILE]

Rounds alternate on one runtime: (a) the client alone; (b) beside streams that are never read, streams that are read a
token a second, streams whose connection is frozen (half-open: nothing comes back, nothing is closed), and a thousand
idle connections. Each (b) begins once the streams that nobody reads stand still. Their connections take in as little
unread as those of our SDK: by gRPC's own measure a client takes in some hundred thousand tokens, and so reads.

Exits with 1 when the 95th percentile of the time between two tokens is over 1.2 times as long in (b) as in (a).
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from rich.console import Console
from rich.progress import Progress

from kakeya._transport._channel import OPTIONS
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
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


class SlowClients:
    """All of them at once. Use as a context manager."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._exits = AsyncExitStack()
        self._calls: list[Any] = []
        self._sessions: list[str] = []
        self._unread: list[str] = []
        self._reading: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "SlowClients":
        await self._connect_idly()
        self._stub = await self._stub_of(self._address)
        self._unread = [await self._stream(self._stub) for _ in range(NUM_UNREAD)]
        for _ in range(NUM_SLOW):
            await self._stream(self._stub)
            self._reading.append(asyncio.create_task(_read_slowly(self._calls[-1])))
        link = await self._exits.enter_async_context(FreezableLink(self._address))
        stub = await self._stub_of(link.address)
        for _ in range(NUM_FROZEN):
            await self._stream(stub)
        link.freeze()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        for call in self._calls:
            call.cancel()
        for session_id in self._sessions:
            await self._stub.CloseSession(api.CloseSessionRequest(session_id=session_id))
        await self._exits.aclose()

    async def settle(self) -> float:
        """Waits until the streams that nobody reads stand still; seconds that it took."""
        started, lengths = time.monotonic(), await self._lengths()
        while time.monotonic() - started < _SETTLE_SECONDS:
            await asyncio.sleep(1.0)
            before, lengths = lengths, await self._lengths()
            if lengths == before:
                break
        return time.monotonic() - started

    async def _lengths(self) -> list[int]:
        infos = [await self._stub.GetSessionInfo(api.GetSessionInfoRequest(session_id=name)) for name in self._unread]
        return [info.kv_live_bytes for info in infos] + [info.history_length for info in infos]

    async def _connect_idly(self) -> None:
        host, _, port = self._address.rpartition(":")
        for _ in range(NUM_IDLE):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(_PREFACE)
            self._exits.callback(writer.transport.abort)

    async def _stub_of(self, address: str) -> Any:
        channel = await self._exits.enter_async_context(grpc.aio.insecure_channel(address, options=OPTIONS))
        return runtime_pb2_grpc.RuntimeServiceStub(channel)

    async def _stream(self, stub: Any) -> str:
        """Begins a stream without an end, of a session of its own; returns the session."""
        session_id = await _open(stub)
        self._sessions.append(session_id)
        call = stub.Generate(api.GenerateRequest(session_id=session_id, max_tokens=_UNBOUNDED_TOKENS))
        await call.initial_metadata()
        self._calls.append(call)
        return session_id


async def _read_slowly(call: Any) -> None:
    async for _ in call:
        await asyncio.sleep(_SLOW_SECONDS)


async def _open(stub: Any) -> str:
    created = await stub.CreateSession(api.CreateSessionRequest())
    session_id = str(created.session_id)
    await stub.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=range(64)))
    return session_id


async def measure(address: str, num_rounds: int, progress: Progress) -> dict[str, Any]:
    """Gaps of both kinds of rounds, in milliseconds."""
    bar = progress.add_task("rounds", total=2 * num_rounds)
    found: dict[str, list[list[float]]] = {"alone": [], "beside": []}
    settled: list[float] = []
    await gaps(address, 1.0)  # warm
    for _ in range(num_rounds):
        found["alone"].append(await gaps(address, ROUND_SECONDS))
        progress.advance(bar)
        async with SlowClients(address) as clients:
            settled.append(await clients.settle())
            found["beside"].append(await gaps(address, ROUND_SECONDS))
        progress.advance(bar)
    return {name: [_percentiles(round_) for round_ in rounds] for name, rounds in found.items()} | {
        "all": {name: _percentiles([gap for round_ in rounds for gap in round_]) for name, rounds in found.items()},
        "settle_seconds": [round(seconds, 1) for seconds in settled],
    }


def _percentiles(seconds: list[float]) -> dict[str, float]:
    p50, p95 = np.percentile(np.array(seconds) * 1e3, [50, 95])
    return {"p50_ms": round(float(p50), 3), "p95_ms": round(float(p95), 3), "tokens": len(seconds)}


def report(facts: dict[str, Any], console: Console) -> float:
    """Prints the rounds; returns the ratio of the 95th percentiles."""
    for name in ("alone", "beside"):
        for number, numbers in enumerate([*facts[name], facts["all"][name]]):
            label = f"round {number + 1}" if number < len(facts[name]) else "all"
            console.print(
                f"{name:7} {label:8} p50 {numbers['p50_ms']:8.2f} ms  p95 {numbers['p95_ms']:8.2f} ms  "
                f"{numbers['tokens']:6} tokens"
            )
    ratio = float(facts["all"]["beside"]["p95_ms"] / facts["all"]["alone"]["p95_ms"])
    verdict = "kept" if ratio <= RATIO_BOUND else "BROKEN"
    console.print(
        f"p95 beside {NUM_UNREAD} unread, {NUM_SLOW} slow and {NUM_FROZEN} frozen streams and {NUM_IDLE} idle "
        f"connections: {ratio:.2f} times that alone (bound: {RATIO_BOUND:g}, {verdict})"
    )
    return ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4, help="of each kind (default: 4)")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    arguments = parser.parse_args()
    _allow_connections()
    with tempfile.TemporaryDirectory() as directory:
        model = save_random_checkpoint(Path(directory) / "random")
        with (
            runtime(model, Path(directory), num_workers=0) as made,
            Progress(console=Console(stderr=True), transient=True) as progress,
        ):
            made.start_worker(lanes=NUM_LANES)
            made.wait_for_workers(1)
            facts = asyncio.run(measure(made.address, arguments.rounds, progress))
    facts["ratio"] = report(facts, Console(width=200))
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if facts["ratio"] <= RATIO_BOUND else 1


def _allow_connections() -> None:
    """This process and those it starts hold as many sockets as the host lets them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
