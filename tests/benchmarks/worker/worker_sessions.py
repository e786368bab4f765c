"""Sessions on a worker without a router: all take their turns at once."""

import asyncio
import random
from typing import Any

import grpc

from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub

_EPOCH = 1


class WorkerSessions:
    """Opens sessions in lanes of their own; an asynchronous context manager.

    Args:
        num_tokens: token ids are below it.
    """

    def __init__(self, address: str, num_sessions: int, num_tokens: int) -> None:
        self._address = address
        self._num_tokens = num_tokens
        self._random = random.Random(0)
        self._lengths = {f"session-{number}": 0 for number in range(num_sessions)}

    async def __aenter__(self) -> "WorkerSessions":
        self._channel = grpc.aio.insecure_channel(self._address)
        self._stub: Any = VerifierServiceStub(self._channel)
        for name in self._lengths:
            await self._stub.OpenSession(pb.OpenSessionRequest(session_id=name, epoch=_EPOCH))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def slab_bytes(self) -> int:
        """Of all lanes, used or not."""
        slab = await self._stub.GetSlab(pb.GetSlabRequest())
        return int(slab.slab_bytes)

    async def turns(self, num_appended: int, num_generated: int) -> None:
        """One turn of each session."""
        await asyncio.gather(*(self._turn(name, num_appended, num_generated) for name in self._lengths))

    async def _turn(self, name: str, num_appended: int, num_generated: int) -> None:
        lease: dict[str, Any] = {"session_id": name, "epoch": _EPOCH}
        token_ids = self._random.choices(range(self._num_tokens), k=num_appended)
        append = pb.AppendRequest(**lease, history_length=self._lengths[name], token_ids=token_ids)
        self._lengths[name] = (await self._stub.Append(append)).lane.history_length
        generate = pb.GenerateRequest(**lease, history_length=self._lengths[name], max_tokens=num_generated)
        async for response in self._stub.Generate(generate):
            if response.HasField("done"):
                self._lengths[name] = response.done.lane.history_length
