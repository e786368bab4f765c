"""A worker without a model, in a process of its own.

python -m tests.benchmarks.worker_without_model ROUTER
"""

import asyncio
import signal
import sys

import grpc

from kakeya_stubs.worker.v1 import registry_pb2_grpc
from tests.unit.router.fake_worker import FakeWorker

_NUM_LANES = 64


async def main(router: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with FakeWorker(num_lanes=_NUM_LANES) as worker, grpc.aio.insecure_channel(router) as channel:
        registry = registry_pb2_grpc.RegistryServiceStub(channel)
        await registry.Join(worker.join_request())
        worker.keep_beating(registry)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
