"""A worker that says it serves kakeya-nano and has no model, in a process of its own: its tokens cost next to nothing.

python -m tests.benchmarks.chat_worker_without_model ROUTER
"""

import asyncio
import signal
import sys

import grpc

from kakeya_shared import installed_models
from kakeya_shared.contract.tokenizer_digest import tokenizer_digest
from kakeya_stubs.worker.v1 import registry_pb2, registry_pb2_grpc
from tests.unit.router.fake_worker import FakeWorker

MODEL = "kakeya-nano"
_NUM_LANES, _WINDOW = 8, 1_000
_VOCAB_SIZE = 2048


class ChatWorker(FakeWorker):
    """Its tokens go round in 800 of kakeya-nano's, none of which ends an answer."""

    def join_request(self) -> registry_pb2.JoinRequest:
        request = super().join_request()
        request.vocab_size = _VOCAB_SIZE
        return request


async def main(router: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    digest = tokenizer_digest(installed_models.directory(MODEL))
    worker = ChatWorker(num_lanes=_NUM_LANES, window=_WINDOW, pool=MODEL, model=MODEL, tokenizer_digest=digest)
    async with worker, grpc.aio.insecure_channel(router) as channel:
        registry = registry_pb2_grpc.RegistryServiceStub(channel)
        await registry.Join(worker.join_request())
        worker.keep_beating(registry)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
