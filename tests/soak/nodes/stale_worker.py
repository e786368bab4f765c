"""A worker that was given up and still runs: it is called as a router does that has not heard of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import redis.asyncio

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import StaleEpoch
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.processes import Process, Runtime

_CALL_SECONDS = 30.0
_BETWEEN_SECONDS = 0.2


@dataclass(frozen=True)
class Held:
    """A session, and the epoch under which a worker has its lane."""

    session_id: str
    epoch: int


async def held_by(made: Runtime, pool: str, incarnation: str) -> Held:
    """A session that the incarnation has a lane for; where there is none just now, one that never was."""
    store: Any = redis.asyncio.Redis.from_url(made.redis.url, decode_responses=True, protocol=2)
    async with store:
        for session_id in await store.smembers(f"kakeya:{{{pool}}}:sessions:{incarnation}"):
            epoch = await store.hget(f"kakeya:{{{pool}}}:session:{session_id}", "epoch")
            if epoch is not None:
                return Held(session_id, int(epoch))
    return Held("nobodys", 1)


@dataclass
class StaleCalls:
    """Attributes:
    refused: how often a call was, by method.
    answers: what came instead of a refusal.
    """

    refused: Counter[str] = field(default_factory=Counter)
    answers: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def on(self, worker: Process, held: Held) -> AsyncIterator[None]:
        """Calls it again and again, for as long as the context lasts and at least once."""
        over = asyncio.Event()

        async def call() -> None:
            async with grpc.aio.insecure_channel(worker.served_at) as channel:
                stub: Any = VerifierServiceStub(channel)
                while True:
                    await self._call_all(stub, worker, held)
                    if over.is_set():
                        return
                    await asyncio.sleep(_BETWEEN_SECONDS)

        async with asyncio.TaskGroup() as group:
            group.create_task(call())
            try:
                yield
            finally:
                over.set()

    async def _call_all(self, stub: Any, worker: Process, held: Held) -> None:
        lane: dict[str, Any] = {"session_id": held.session_id, "epoch": held.epoch}
        wait = {"timeout": _CALL_SECONDS}
        calls: dict[str, Awaitable[Any]] = {
            "OpenSession": stub.OpenSession(pb.OpenSessionRequest(session_id="new", epoch=1), **wait),
            "Append": stub.Append(pb.AppendRequest(**lane, token_ids=[1]), **wait),
            "Generate": anext(aiter(stub.Generate(pb.GenerateRequest(**lane, max_tokens=1), **wait))),
            "Stop": stub.Stop(pb.StopRequest(**lane), **wait),
            "Rewind": stub.Rewind(pb.RewindRequest(**lane), **wait),
            "CloseSession": stub.CloseSession(pb.CloseSessionRequest(**lane), **wait),
        }
        for method, call in calls.items():
            try:
                answer = str(await call) or "nothing"
            except grpc.aio.AioRpcError as error:
                if isinstance(error_details.decode(error), StaleEpoch):
                    self.refused[method] += 1
                    continue
                answer = f"{error.code().name}: {error.details()}"
            self.answers.append(f"{worker.log.stem}, which is stale, answers {method} with {answer}")
