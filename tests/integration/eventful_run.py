"""A run in which everything happens that panels and alerts are about, on a runtime that a Prometheus scrapes."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import httpx

import kakeya
from tests.integration.credentials import Operator
from tests.integration.open_http import ENDLESS, MODEL
from tests.integration.processes import LONG_SECONDS, Process, Runtime, eventually
from tests.prometheus_server import Prometheus, Targets

LANES = 4
SLOW_SECONDS = 10.5
"""Above the bound of KakeyaSlowRecovery."""
ROUTER_FLAGS = (
    *("--heartbeat-interval-seconds=0.3", "--reap-interval-seconds=0.2"),
    *("--admission=evict-idle", "--close-idle-after-seconds=0", f"--queue-length={LANES + 1}", "--queue-seconds=0"),
)
SHIM_FLAGS = ("--max-in-flight=2", "--queue-length=1")
_HELLO = {"role": "user", "content": "Hello!"}


class Answer:
    """One without an end, of a session of its own.

    Attributes:
        worker: that it began at.
        num_tokens: that have come.
    """

    def __init__(self, session: kakeya.AsyncSession) -> None:
        self.session = session
        self.worker = ""
        self.num_tokens = 0
        self._is_read = asyncio.Event()
        self._is_read.set()
        self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        async for _ in self.session.turn(range(40), max_tokens=60_000, ignore_eos=True, temperature=1.0, seed=1):
            self.num_tokens += 1
            await self._is_read.wait()

    async def has_more(self) -> None:
        """Returns when some tokens more have come."""
        before = self.num_tokens

        async def grown() -> bool:
            return self.num_tokens > before + 20 or (self._task.done() and self._task.result() is None)

        await eventually(grown, "the answer goes on")

    def leave_unread(self) -> None:
        """So that it is paused: its lane stays taken, and nothing is computed."""
        self._is_read.clear()

    async def end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.session.close()


class EventfulRun:
    """One runtime of two workers with `LANES` lanes each and one snapshot store, two routers, and an HTTP shim."""

    def __init__(self, made: Runtime, operator: Operator, prometheus: Prometheus, targets: Targets) -> None:
        self._made = made
        self._operator = operator
        self._prometheus = prometheus
        self._targets = targets
        self._began = time.time()
        self._key = operator.make_key("harbour")
        self._clients = AsyncExitStack()
        self.tenants: list[kakeya.AsyncClient] = []

    async def __aenter__(self) -> "EventfulRun":
        for key, router in zip((self._key, self._operator.make_key("orchard")), self._made.routers, strict=True):
            client = kakeya.AsyncClient(router.address, api_key=key, max_attempts=1)
            self.tenants.append(await self._clients.enter_async_context(client))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._clients.aclose()

    async def shown(self, expr: str) -> None:
        """Returns once Prometheus has seen more than nothing of it."""

        async def is_there() -> bool:
            drawn = await asyncio.to_thread(self._prometheus.over, expr, self._began)
            return any(value > 0 for series in drawn for value in series.values)

        await eventually(is_there, f"Prometheus sees {expr}")

    async def fired(self, alert: str) -> None:
        await self.shown(f'ALERTS{{alertname="{alert}",alertstate="firing"}}')

    async def says(self, alert: str, description: str) -> None:
        """Returns once an alert fires that says so; it may have fired before, for something else."""

        async def is_said() -> bool:
            firing = await asyncio.to_thread(self._prometheus.firing)
            return firing.get(alert, {}).get("description") == description

        await eventually(is_said, f"{alert} fires: {description}")

    async def converse_over_http(self) -> None:
        """Turns that begin, go on and fork; answers that are waited for, refused for want of a place, and left."""
        url, headers = f"http://{self._made.shims[0].address}/v1", {"authorization": f"Bearer {self._key}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=LONG_SECONDS, trust_env=False) as client:
            talk: list[dict[str, str]] = [_HELLO]
            for question in ("My train leaves at 7:45.", "When does my train leave?"):
                answer = (await _chat(client, talk)).json()["choices"][0]["message"]["content"]
                talk += [{"role": "assistant", "content": answer}, {"role": "user", "content": question}]
            await _chat(client, talk)
            await _chat(client, [*talk[:-1], {"role": "user", "content": "What is 2 + 3?"}])
            async with AsyncExitStack() as left:
                for _ in range(2):  # all the places that there are
                    body = _body([_HELLO], stream=True, max_tokens=60_000, logit_bias=ENDLESS)
                    stream = await left.enter_async_context(client.stream("POST", "/chat/completions", json=body))
                    assert stream.status_code == 200
                waiting = asyncio.create_task(_chat(client, [_HELLO]))
                await self.shown("sum(kakeya_http_waiting_requests)")
                assert (await client.post("/chat/completions", json=_body([_HELLO]))).status_code == 429
            assert (await waiting).status_code == 200

    async def fork_park_and_expire(self) -> None:
        client = self.tenants[0]
        session = await client.create_session()
        await session.turn(range(30), max_tokens=100, temperature=1.0, ignore_eos=True).all()
        fork = await client.create_session(fork_from=session)
        await session.park()
        await session.turn([1, 2, 3], max_tokens=4).all()

        async def is_gone() -> bool:
            return not await asyncio.to_thread(self._made.expire, fork.id)

        await eventually(is_gone, "the fork has expired")
        await session.close()

    async def take_turns_over_few_lanes(self) -> None:
        """Of two tenants, whose sessions are parked for each other until that is an alert."""
        sessions = [await client.create_session() for client in self.tenants for _ in range(LANES + 2)]
        alert = asyncio.create_task(self.fired("KakeyaParksForRoom"))
        while not alert.done():
            for session in sessions:
                await session.turn([1, 2, 3, 4, 5], max_tokens=20).all()
        await alert
        for session in sessions:
            await session.close()

    async def lose_a_worker_with_all_lanes_taken(self) -> list[Answer]:
        """Answers wait for a lane, so that their clients' pause is an alert, and who comes meanwhile is refused.

        Returns:
            Those of the answers that were not ended to make room for a newcomer; they have gone on.
        """
        answers = [Answer(await client.create_session()) for client in self.tenants for _ in range(LANES)]
        for answer in answers:
            await answer.has_more()
            answer.worker = (await answer.session.info()).worker
        lost = _process(self._made.workers, answers[0].worker)
        broken = [answer for answer in answers if answer.worker == answers[0].worker]
        kept = [answer for answer in answers if answer not in broken]
        assert len(broken) == len(kept) == LANES
        for answer in kept:
            answer.leave_unread()
        await self.shown('sum(kakeya_worker_operations{kind="paused"})')
        os.kill(lost.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        await asyncio.to_thread(self._made.lapse, lost)
        waiting = asyncio.create_task(self.tenants[0].create_session())
        await self.shown("max(kakeya_router_tenant_queue_length)")
        await self.fired("KakeyaWorkerLost")
        await self.says("KakeyaCallsQueue", f"{LANES + 1} calls wait.")
        await self._until_fired("KakeyaCallsRefused", self._come_in_vain)
        await asyncio.sleep(killed + SLOW_SECONDS - time.monotonic())
        for answer in kept:
            await answer.end()
        for answer in broken:
            await answer.has_more()
        await broken.pop().end()
        await (await waiting).close()
        await self.fired("KakeyaSlowRecovery")
        return broken

    async def _until_fired(self, name: str, attempt: Callable[[], Awaitable[None]]) -> None:
        alert = asyncio.create_task(self.fired(name))
        while not alert.done():
            await attempt()
        await alert

    async def _come_in_vain(self) -> None:
        try:
            await self.tenants[0].create_session()
        except kakeya.QueueFull:
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("there was a lane")

    async def replace_a_worker(self, answers: Sequence[Answer]) -> None:
        """One that holds answers is drained and ended; they are moved to a new one, which reads none of its files."""
        old = _process(self._made.workers, (await answers[0].session.info()).worker)
        flags = ("--weights=int8", f"--snapshots={self._made.directory / 'own-snapshots'}")
        await asyncio.to_thread(self._made.start_worker, *flags, lanes=LANES)
        await asyncio.to_thread(self._made.wait_for_workers, 2)
        self._targets.set("kakeya-worker", [each.metrics for each in self._made.workers])
        await asyncio.to_thread(self._operator.drain, old.worker_id)
        await self.shown('max(kakeya_router_workers{state="draining"})')
        assert await asyncio.to_thread(old.terminate) == 0
        for answer in answers:
            await answer.has_more()
        await self.shown('sum(kakeya_router_move_seconds_count{outcome="moved"})')
        for answer in answers:
            await answer.end()


def _process(workers: Sequence[Process], worker_id: str) -> Process:
    return next(each for each in workers if each.worker_id == worker_id)


def _body(messages: list[dict[str, str]], **more: object) -> dict[str, Any]:
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 32} | more


async def _chat(client: httpx.AsyncClient, messages: list[dict[str, str]]) -> httpx.Response:
    answer = await client.post("/chat/completions", json=_body(messages))
    assert answer.status_code == 200, answer.text
    return answer
