"""Routers side by side on one Redis, and calls of one of them, timed."""

import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.integration.processes import Runtime
from tests.redis_server import redis_server

_CALL_SECONDS = 30.0


@dataclass(frozen=True)
class Kind:
    """How a router is started.

    Attributes:
        python: where it is installed.
    """

    name: str
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable


@contextmanager
def routers(kinds: Sequence[Kind], directory: Path, *, in_order: bool) -> Iterator[list[Runtime]]:
    """One of each kind, on an empty Redis.

    Args:
        directory: of the logs, by kind.
        in_order: in which they are started; else the other way round.
    """
    made = {}
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        for kind in kinds if in_order else reversed(kinds):
            logs = directory / kind.name
            logs.mkdir(exist_ok=True)
            made[kind.name] = Runtime(redis, directory, logs, dict(kind.environment), python=kind.python)
            stack.callback(made[kind.name].stop)
            made[kind.name].start_router(*kind.flags)
        yield [made[kind.name] for kind in kinds]


@asynccontextmanager
async def stubs(made: Sequence[Runtime]) -> AsyncIterator[list[Any]]:
    """Of each router, on a connection of its own."""
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(each.address)) for each in made]
        yield [runtime_pb2_grpc.RuntimeServiceStub(channel) for channel in channels]


@dataclass
class Caller:
    """Calls a router.

    Attributes:
        seconds: by call, how long each took.
    """

    stub: Any
    metadata: tuple[tuple[str, str], ...] = ()
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def create(self) -> str:
        """Returns the session's id."""
        return str((await self._call("CreateSession", api.CreateSessionRequest())).session_id)

    async def append(self, session_id: str, num_tokens: int) -> None:
        await self._call("AppendTokens", api.AppendTokensRequest(session_id=session_id, token_ids=range(num_tokens)))

    async def generate(self, session_id: str, num_tokens: int) -> None:
        started = time.perf_counter()
        request = api.GenerateRequest(session_id=session_id, max_tokens=num_tokens)
        async for _ in self.stub.Generate(request, timeout=_CALL_SECONDS, metadata=self.metadata):
            pass
        self.seconds["Generate"].append(time.perf_counter() - started)

    async def close(self, session_id: str) -> None:
        await self._call("CloseSession", api.CloseSessionRequest(session_id=session_id))

    async def _call(self, name: str, request: Any) -> Any:
        started = time.perf_counter()
        answer = await getattr(self.stub, name)(request, timeout=_CALL_SECONDS, metadata=self.metadata)
        self.seconds[name].append(time.perf_counter() - started)
        return answer
