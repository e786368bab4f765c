"""A worker without a model, in a process of its own.

python -m tests.benchmarks.worker_without_model ROUTER ...

It joins at the first router, and reports to all of them in turn.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Any

import grpc

from kakeya_stubs.worker.v1 import registry_pb2_grpc
from tests.unit.router.fake_worker import FakeWorker

_NUM_LANES = 64
_HEARTBEAT_SECONDS = 1.0


class InTurn:
    """RegistryService of several routers: each heartbeat goes to the next."""

    def __init__(self, registries: Sequence[Any]) -> None:
        self._registries = cycle(registries)

    def Heartbeat(self, *arguments: Any, **options: Any) -> Any:
        return next(self._registries).Heartbeat(*arguments, **options)


async def main(routers: Sequence[str]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(FakeWorker(num_lanes=_NUM_LANES))
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(router)) for router in routers]
        registries = [registry_pb2_grpc.RegistryServiceStub(channel) for channel in channels]
        await registries[0].Join(worker.join_request())
        worker.keep_beating(InTurn(registries), _HEARTBEAT_SECONDS / len(registries))
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
