"""A worker without a model, in a process of its own: its tokens cost next to nothing.

python -m tests.benchmarks.calls.worker_without_model [--chat] ROUTER ...

It joins at the first router, and reports to all of them in turn. With --chat it says that it serves kakeya-nano: its
tokens go round in 800 of that model's, each of which has a text of its own, and none of which ends an answer.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from itertools import cycle
from typing import Any

import grpc

from kakeya_bench.rivals.command import CommandFailed
from kakeya_shared import installed_models
from kakeya_shared.contract.tokenizer_digest import tokenizer_digest
from kakeya_shared.process import logs
from kakeya_stubs.worker.v1 import registry_pb2_grpc
from tests.integration.processes import Runtime, wait_until
from tests.unit.router.fake_worker import FakeWorker

CHAT = "--chat"
CHAT_MODEL = "kakeya-nano"
_CHAT_VOCAB_SIZE = 2048
_FIRST_CHAT_TOKEN_ID = 256  # before it are single bytes, many of which are no text until others follow
_NUM_LANES = 64
_HEARTBEAT_SECONDS = 1.0


@contextmanager
def joining(runtimes: Sequence[Runtime], *flags: str) -> Iterator[None]:
    """The process; it has joined the first of these, and all know it. Raises CommandFailed: it has ended instead, as
    where that router is older than what its worker speaks.
    """
    addresses = [each.address for each in runtimes]
    module = "tests.benchmarks.calls.worker_without_model"
    process = subprocess.Popen([sys.executable, "-m", module, *flags, *addresses])
    try:
        for each in runtimes:
            wait_until(partial(_is_known, each, process), "a worker joins")
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def _is_known(made: Runtime, process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is not None:
        raise CommandFailed("the worker without a model has ended before it had joined; what it said is above")
    return len(made.list_workers()) == 1


class InTurn:
    """RegistryService of several routers: each heartbeat goes to the next."""

    def __init__(self, registries: Sequence[Any]) -> None:
        self._registries = cycle(registries)

    def Heartbeat(self, *arguments: Any, **options: Any) -> Any:
        return next(self._registries).Heartbeat(*arguments, **options)


def _chat_worker() -> FakeWorker:
    digest = tokenizer_digest(installed_models.directory(CHAT_MODEL))
    worker = FakeWorker(num_lanes=8, window=1_000, pool=CHAT_MODEL, model=CHAT_MODEL, tokenizer_digest=digest)
    worker.first_token_id = _FIRST_CHAT_TOKEN_ID
    return worker


async def main(arguments: Sequence[str]) -> None:
    is_chat, routers = CHAT in arguments, [each for each in arguments if each != CHAT]
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(_chat_worker() if is_chat else FakeWorker(num_lanes=_NUM_LANES))
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(router)) for router in routers]
        registries = [registry_pb2_grpc.RegistryServiceStub(channel) for channel in channels]
        request = worker.join_request()
        if is_chat:
            request.vocab_size = _CHAT_VOCAB_SIZE
        await registries[0].Join(request)
        worker.keep_beating(InTurn(registries), _HEARTBEAT_SECONDS / len(registries))
        await stop.wait()


if __name__ == "__main__":
    logs.configure("worker", "error")  # a line for each call would be of what is measured beside it
    asyncio.run(main(sys.argv[1:]))
