"""Clients in closed loop: each opens a session, uses it a little, closes it, and begins again; some vanish."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import Exhausted, KakeyaError
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.freezable_link import FreezableLink
from tests.soak.report import Tally

Metadata = tuple[tuple[str, str], ...]

_CALL_SECONDS = 60.0
_PROMPT_TOKENS, _NEW_TOKENS = 8, 8
_HOLD_SECONDS = (0.3, 0.9)
_VANISH_SECONDS = (0.02, 0.8)
# What a client does with its next session: most keep it, some leave while they wait for it.
WAYS = {"stays": 76, "cancels": 10, "times out": 8, "breaks": 6}


@dataclass
class Experience:
    """What the clients of a tenant have seen.

    Attributes:
        waits: seconds from the first attempt to get a session until it was there, pauses that were asked for included.
        waits_in_sessions: the same, counted in sessions that anybody got meanwhile: how fast the machine is does not
            matter to that.
        num_attempts: for each of them.
        refusals: by reason.
    """

    tally: Tally
    waits: list[float] = field(default_factory=list)
    waits_in_sessions: list[int] = field(default_factory=list)
    num_attempts: list[int] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)

    def as_json(self, seconds: float) -> dict[str, Any]:
        """Of a stretch of so many."""
        waits = np.array(self.waits or [float("nan")]) * 1e3
        named = {"mean": waits.mean(), "p50": np.percentile(waits, 50), "p95": np.percentile(waits, 95)}
        return {
            "sessions": len(self.waits),
            "sessions_per_second": round(len(self.waits) / seconds, 2),
            "wait_ms": {name: round(float(value), 1) for name, value in named.items()},
            "most_attempts": max(self.num_attempts, default=0),
            "refusals": dict(self.refusals),
            "ways": dict(self.ways),
        }


@dataclass(frozen=True)
class OverloadClient:
    """One client, with a connection of its own.

    Attributes:
        num_admitted: how many sessions anybody got until now.
        first_way: what it does at first; None: it stays each time.
    """

    address: str
    metadata: Metadata
    experience: Experience
    num_admitted: Callable[[], int]
    chance: random.Random
    first_way: str | None

    async def run(self, stop: asyncio.Event) -> None:
        async with _channel(self.address) as channel:
            stub: Any = runtime_pb2_grpc.RuntimeServiceStub(channel)
            way = self.first_way or "stays"
            while not stop.is_set():
                self.experience.ways[way] += 1
                try:
                    await self._go(way, stub, stop)
                except (grpc.aio.AioRpcError, KakeyaError) as error:
                    self.experience.tally.violate(f"a client that {way}: {error!r}")
                if self.first_way is not None:
                    way = self.chance.choices(list(WAYS), list(WAYS.values()))[0]

    async def _go(self, way: str, stub: Any, stop: asyncio.Event) -> None:
        match way:
            case "stays":
                session_id = await self._get_in(stub, stop)
                if session_id:
                    await self._use(stub, session_id)
            case "cancels":
                call = self._asking(stub, _CALL_SECONDS)
                await self._whatever_comes(call, stub, vanish=call.cancel)
            case "times out":
                await self._whatever_comes(self._asking(stub, self.chance.uniform(*_VANISH_SECONDS)), stub)
            case "breaks":
                await self._break()

    async def _get_in(self, stub: Any, stop: asyncio.Event) -> str:
        """Asks until it gets a session, as often and as late as it is told; "" where `stop` comes first."""
        started, num_attempts, num_admitted = time.monotonic(), 0, self.num_admitted()
        while not stop.is_set():
            num_attempts += 1
            try:
                created = await self._create(stub)
            except Exhausted as refusal:
                await asyncio.sleep(refusal.retry_after_seconds or 1.0)
                continue
            self.experience.waits.append(time.monotonic() - started)
            self.experience.waits_in_sessions.append(self.num_admitted() - num_admitted)
            self.experience.num_attempts.append(num_attempts)
            return str(created.session_id)
        return ""

    def _asking(self, stub: Any, timeout_seconds: float) -> Any:
        return stub.CreateSession(api.CreateSessionRequest(), timeout=timeout_seconds, metadata=self.metadata)

    async def _create(self, stub: Any) -> api.CreateSessionResponse:
        try:
            return await self._asking(stub, _CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            refusal = error_details.decode(error)
            if not isinstance(refusal, Exhausted):
                raise
            self.experience.refusals[refusal.reason] += 1
            if not refusal.retry_after_seconds:
                self.experience.tally.violate(f"{refusal.reason} without RetryInfo")
            raise refusal from error

    async def _use(self, stub: Any, session_id: str) -> None:
        rest = {"timeout": _CALL_SECONDS, "metadata": self.metadata}
        tokens = [self.chance.randrange(500) for _ in range(_PROMPT_TOKENS)]
        await stub.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=tokens), **rest)
        async for _ in stub.Generate(api.GenerateRequest(session_id=session_id, max_tokens=_NEW_TOKENS), **rest):
            pass
        await asyncio.sleep(self.chance.uniform(*_HOLD_SECONDS))
        await stub.CloseSession(api.CloseSessionRequest(session_id=session_id), **rest)

    async def _break(self) -> None:
        """Its connection ends while it waits, as that of a process does which is killed."""
        async with FreezableLink(self.address) as link, _channel(link.address) as channel:
            stub: Any = runtime_pb2_grpc.RuntimeServiceStub(channel)
            await self._whatever_comes(self._asking(stub, 5), stub, vanish=link.cut)

    async def _whatever_comes(self, call: Any, stub: Any, vanish: Callable[[], object] | None = None) -> None:
        """Vanishes after a while; an answer that came before is used."""
        timer = asyncio.get_running_loop().call_later(self.chance.uniform(*_VANISH_SECONDS), vanish or (lambda: None))
        try:
            created = await call
            timer.cancel()
            await self._use(stub, created.session_id)
        except asyncio.CancelledError:
            if not call.cancelled():
                raise
        except grpc.aio.AioRpcError as error:
            refusal = error_details.decode(error)
            if isinstance(refusal, Exhausted):
                self.experience.refusals[refusal.reason] += 1
                await asyncio.sleep(refusal.retry_after_seconds or 1.0)
        finally:
            timer.cancel()


def _channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
