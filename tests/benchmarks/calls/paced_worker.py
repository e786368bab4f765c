"""A worker without a model whose sessions take their steps together, so many a second, in a process of its own.

python -m tests.benchmarks.calls.paced_worker [--reverse] STEPS_A_SECOND CA ROUTER

It joins the router, which speaks TLS unless CA is empty; with --reverse it keeps a tunnel to it, and has another name.
What it sends of a lane is as long as a lane of a real model.
"""

import asyncio
import math
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kakeya_shared.errors.tree import IncompatibleContract
from kakeya_shared.process import logs
from kakeya_shared.rpc.tls import ClientTls, ContextTls
from kakeya_stubs.worker.v1 import registry_pb2_grpc
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_worker.joining.router_answer import answered
from kakeya_worker.joining.router_link import RouterLink
from kakeya_worker.joining.worker_identity import WorkerIdentity
from kakeya_worker.metrics import no_metrics
from kakeya_worker.tunnels.tunnels import Tunnels
from tests.unit.router.fake_worker import EVERY_FEATURE, FakeWorker, Lane

LANE_BYTES = 95_000_000
_NUM_LANES = 64
_PART = bytes(1 << 20)
_HEARTBEAT_SECONDS = 0.5


class PacedWorker(FakeWorker):
    """All lanes step when the clock strikes."""

    strikes: asyncio.Event

    async def strike(self, steps_a_second: float) -> None:
        """Goes on until cancelled. Others can tell by the clock when it struck, if they know how often it does."""
        loop = asyncio.get_running_loop()
        at = math.floor(loop.time() * steps_a_second) / steps_a_second
        self.strikes = asyncio.Event()
        while True:
            at += 1 / steps_a_second
            await asyncio.sleep(max(0.0, at - loop.time()))
            struck, self.strikes = self.strikes, asyncio.Event()
            struck.set()

    async def _step(self, lane: Lane) -> None:
        await self.strikes.wait()
        if lane.end is not None:
            raise lane.end

    async def ReadLane(self, request: pb.ReadLaneRequest, context: object) -> AsyncIterator[pb.ReadLaneResponse]:
        yield pb.ReadLaneResponse(content=b"".join([part.content async for part in super().ReadLane(request, context)]))
        for start in range(0, LANE_BYTES, len(_PART)):
            yield pb.ReadLaneResponse(content=_PART[: LANE_BYTES - start])

    async def WriteLane(self, requests: AsyncIterator[pb.WriteLaneRequest], context: object) -> pb.WriteLaneResponse:
        begun = [await anext(requests), await anext(requests)]
        num_bytes = sum([len(request.content) async for request in requests])
        assert num_bytes == LANE_BYTES, num_bytes
        return await super().WriteLane(_each(begun), context)

    async def GetSlab(self, request: pb.GetSlabRequest, context: object) -> pb.GetSlabResponse:
        return pb.GetSlabResponse()


async def _each(requests: Iterable[pb.WriteLaneRequest]) -> AsyncIterator[pb.WriteLaneRequest]:
    for request in requests:
        yield request


@dataclass
class Joined:
    """What tunnels ask of a worker's registration."""

    worker: PacedWorker
    routers: list[str]
    joined: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def identity(self) -> WorkerIdentity:
        return WorkerIdentity(self.worker.worker_id, self.worker.pool, self.worker.model, "", num_threads=1)

    @property
    def incarnation(self) -> str:
        return self.worker.incarnation

    def tell_tunnels(self, routers: Sequence[str]) -> None:
        self.worker.tunnels = routers

    def join_again(self) -> None:
        raise AssertionError("the router does not know the worker")


async def _join(registry: Any, worker: FakeWorker) -> None:
    """A router of another commit may speak the contract's first version; workers join it so, too."""
    try:
        await answered(registry.Join(worker.join_request()))
    except IncompatibleContract as error:
        worker.contract_version, worker.features = int(error.metadata["contract_version"]), ()
        await answered(registry.Join(worker.join_request()))


async def main(arguments: Sequence[str]) -> None:
    is_reverse, (steps, authorities, router) = "--reverse" in arguments, [a for a in arguments if a != "--reverse"]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = PacedWorker(
            "worker-behind" if is_reverse else "worker-a",
            num_lanes=_NUM_LANES,
            features=EVERY_FEATURE,
            socket=place / "server" if is_reverse else None,
        )
        worker = await stack.enter_async_context(made)
        link = RouterLink(ClientTls(Path(authorities)) if authorities else None)
        registry = registry_pb2_grpc.RegistryServiceStub(await stack.enter_async_context(link.open(router)))
        await _join(registry, worker)
        tasks = [asyncio.create_task(worker.strike(float(steps)))]
        if is_reverse:
            joined = Joined(worker, [router])
            joined.joined.set()
            tls = ContextTls.of_client(Path(authorities), None, None)
            tunnels = Tunnels(joined, link, place / "server", tls, no_metrics())  # type: ignore[arg-type]  # as much of one as is used
            tasks.append(asyncio.create_task(tunnels.run()))
        worker.keep_beating(registry, _HEARTBEAT_SECONDS)
        await stop.wait()
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    logs.configure("worker", "error")  # a line for each call would be of what is measured beside it
    asyncio.run(main(sys.argv[1:]))
