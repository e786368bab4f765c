"""The far end of a tunnel, as the wire has it: a worker's control stream, and connections that it makes when asked."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import grpc

from kakeya_shared.settings.addresses import HostPort
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.stack import answer

BEAT_SECONDS = 0.05


class FarEnd:
    """Of a worker without a model. Use as a context manager.

    Attributes:
        welcome: what the router has greeted it with.
        heard: what came after that.
        ended: done with the error that ended it, or None.
        connections: that it was asked for, each done at its end.
        failing: why it answers no dial, "" for that it does.
        beating: clear it and nothing is said any more.
    """

    def __init__(self, worker: FakeWorker, registry: Any, **begin: str) -> None:
        said = {"pool": worker.pool, "worker_id": worker.worker_id, "incarnation": worker.incarnation} | begin
        self.begin = pb.TunnelRequest.Begin(**said)
        self.welcome = pb.TunnelResponse.Welcome()
        self.heard: list[pb.TunnelResponse] = []
        self.connections: list[asyncio.Task[Any]] = []
        self.failing = ""
        self.beating = asyncio.Event()
        self.beating.set()
        self._worker = worker
        self._registry = registry
        self._tasks = set[asyncio.Task[Any]]()

    async def __aenter__(self) -> Self:
        """Raises what the router answers."""
        self._call = self._registry.Tunnel()
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await self._call.write(pb.TunnelRequest(begin=self.begin))
        self.welcome = (await self._read()).welcome
        self.ended = self._start(self._hear())
        self._start(self._beat())
        self._worker.tunnels = [*self._worker.tunnels, self.welcome.router]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.tunnels = [each for each in self._worker.tunnels if each != self.welcome.router]
        self._call.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # until what was closed is

    async def _read(self) -> pb.TunnelResponse:
        response: Any = await answer(self._call.read())
        if response is grpc.aio.EOF:
            raise EOFError
        assert isinstance(response, pb.TunnelResponse)
        return response

    async def _hear(self) -> None:
        while True:
            self.heard.append(await self._read())
            if self.heard[-1].HasField("dial"):
                self.connections.append(self._start(self._connect(self.heard[-1].dial.dial)))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self.beating.wait()
            await self._call.write(pb.TunnelRequest())

    async def _connect(self, dial: bytes) -> None:
        if self.failing:
            failed = pb.TunnelRequest.Failed(dial=dial, why=self.failing)
            await self._call.write(pb.TunnelRequest(failed=failed))
            return
        host, port = HostPort.parse(self.welcome.address)
        assert isinstance(self._worker.server.socket, Path)
        outer, inner = (
            await asyncio.open_connection(host, port),
            await asyncio.open_unix_connection(self._worker.server.socket),
        )
        outer[1].write(f"KAKEYA-TUNNEL/1 dial {self.welcome.router} {dial.hex()}\n".encode())
        await asyncio.gather(_copy(outer[0], inner[1]), _copy(inner[0], outer[1]))

    def _start(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while content := await source.read(65_536):
            sink.write(content)
            await sink.drain()
    except OSError:
        pass  # the other side is gone
    finally:
        sink.close()
