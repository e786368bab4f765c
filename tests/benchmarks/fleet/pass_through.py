"""A proxy of grpc.aio that passes on what it gets and knows nothing of it: what a call costs at the least.

python -m tests.benchmarks.fleet.pass_through TARGET

Its one line is the address at which it listens.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc


class PassThrough(grpc.GenericRpcHandler):
    """Calls with one request; all of their answers are passed on."""

    def __init__(self, target: grpc.aio.Channel) -> None:
        self._target = target

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        call: Any = self._target.unary_stream(details.method)

        async def passed(request: bytes, context: object) -> AsyncIterator[bytes]:
            async for response in call(request):
                yield response

        return grpc.unary_stream_rpc_method_handler(passed)


async def main(target: str) -> None:
    async with grpc.aio.insecure_channel(target) as channel:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((PassThrough(channel),))
        print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
        await server.start()
        await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
