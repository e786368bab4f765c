"""What is done to a runtime: each fault is healed before the next of its kind."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable

import kakeya
from tests.chaos.faulty_disk import FaultyDisk
from tests.chaos.network import Network
from tests.chaos.redis_disk import RedisDisk
from tests.chaos.redis_losses import RedisLosses
from tests.integration.processes import Process, Runtime

_SIGKILL, _SIGSTOP, _SIGCONT, _SIGTERM = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM
_PAUSES_SECONDS = (0.2, 6.0)  # shorter and longer than a worker's lease
_REDIS_ECHO_SECONDS = 40.0


class Faults:
    """Kills, stops and ends the processes of a runtime, and starts others in their place.

    Attributes:
        counts: how often each fault was caused.
        last_redis_fault: `time.monotonic` of the latest one.
    """

    def __init__(
        self,
        made: Runtime,
        network: Network,
        disk: FaultyDisk,
        redis_disk: RedisDisk | None,
        draw: random.Random,
        router_flags: tuple[str, ...],
        *,
        with_redis: bool,
    ) -> None:
        self._made = made
        self._network = network
        self._disk = disk
        self._redis_disk = redis_disk
        self._draw = draw
        self._router_flags = router_flags
        self._losses = RedisLosses(made.redis, draw)
        kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "kill -9 a worker": (4, lambda: self._end_worker(_SIGKILL)),
            "kill -9 the worker of a fork before its first turn": (3, self._end_worker_of_fork),
            "SIGTERM a worker": (3, lambda: self._end_worker(_SIGTERM)),
            "SIGSTOP a worker": (3, self._pause_worker),
            "kill -9 a router": (2, lambda: self._end_router(_SIGKILL)),
            "SIGTERM a router": (2, lambda: self._end_router(_SIGTERM)),
            "cut connections": (2, self._cut),
            "silence connections": (2, self._silence),
            "fill the disk": (1, lambda: self._trouble_disk(self._disk.fill)),
            "slow the disk": (1, lambda: self._trouble_disk(self._disk.slow)),
        }
        if with_redis:
            kinds["kill -9 Redis"] = (1, self._restart_redis)
            if redis_disk is not None:
                kinds["fill Redis' disk"] = (1, self._fill_redis_disk)
            kinds |= {
                "set Redis back": (1, lambda: self._lose(self._losses.set_back)),
                "evict keys": (1, lambda: self._lose(self._losses.evict)),
                "overwrite journals": (1, lambda: self._lose(self._losses.overwrite)),
            }
        self._kinds = kinds
        self.counts: dict[str, int] = dict.fromkeys(kinds, 0)
        self.last_redis_fault = -_REDIS_ECHO_SECONDS
        self._last_loss = -_REDIS_ECHO_SECONDS
        self._next_fork: asyncio.Future[Process | None] | None = None  # of whom the fault is waiting for

    @property
    def redis_is_to_blame(self) -> bool:
        """Whether an error that a client sees now may come from a Redis that was away."""
        return time.monotonic() - self.last_redis_fault < _REDIS_ECHO_SECONDS

    def may_have_lost(self, since: float) -> bool:
        """Whether a session of that time may have lost something for good, which its client is told then."""
        return self._last_loss > since

    async def _lose(self, loses: Callable[[], Awaitable[None]]) -> None:
        self.last_redis_fault = time.monotonic()
        await loses()
        self.last_redis_fault = self._last_loss = time.monotonic()

    async def cause(self) -> str:
        """One at random, and its cure; returns its name."""
        names = list(self._kinds)
        name = self._draw.choices(names, [self._kinds[each][0] for each in names])[0]
        self.counts[name] += 1
        await self._kinds[name][1]()
        return name

    async def on_fork(self, fork: kakeya.AsyncSession) -> None:
        """Before its first turn; ends its worker if that is the fault that is to be."""
        if self._next_fork is not None:
            waiting, self._next_fork = self._next_fork, None
            worker = None
            try:
                worker = self._network.worker((await fork.info()).worker)
                if worker is not None:
                    worker.kill()
            finally:
                waiting.set_result(worker)

    async def _end_worker_of_fork(self) -> None:
        worker = None
        while worker is None:  # one that has no lane now
            waiting = self._next_fork = asyncio.get_running_loop().create_future()
            worker = await waiting
        await self._end_worker(_SIGKILL, worker)

    async def _end_worker(self, number: signal.Signals, worker: Process | None = None) -> None:
        worker = worker or self._draw.choice(self._made.workers)
        self._made.workers.remove(worker)
        await _end(worker, number)
        await self._network.forget(worker)
        await self._network.joined(await self._network.start_worker())

    async def _pause_worker(self) -> None:
        worker = self._draw.choice(self._made.workers)
        os.kill(worker.process.pid, _SIGSTOP)
        try:
            await asyncio.sleep(self._draw.uniform(*_PAUSES_SECONDS))
        finally:
            os.kill(worker.process.pid, _SIGCONT)
        await self._network.joined(worker)

    async def _cut(self) -> None:
        self._draw.choice(self._network.links).cut()

    async def _silence(self) -> None:
        """Both ends believe in the connection, which goes on later or breaks."""
        link, breaks = self._draw.choice(self._network.links), self._draw.random() < 0.5
        link.silence()
        try:
            await asyncio.sleep(self._draw.uniform(*_PAUSES_SECONDS))
        finally:
            if breaks:
                link.cut()
            link.flow()

    async def _trouble_disk(self, begin: Callable[[], None]) -> None:
        begin()
        try:
            await asyncio.sleep(self._draw.uniform(*_PAUSES_SECONDS))
        finally:
            self._disk.heal()

    async def _end_router(self, number: signal.Signals) -> None:
        """Its successor listens on the same port, as behind a supervisor."""
        at = self._draw.randrange(len(self._made.routers))
        router = self._made.routers.pop(at)
        await _end(router, number)
        restarted = await asyncio.to_thread(
            lambda: self._made.start_router(*self._router_flags, address=router.address)
        )
        self._made.routers.remove(restarted)
        self._made.routers.insert(at, restarted)

    async def _restart_redis(self) -> None:
        self.last_redis_fault = time.monotonic()
        await asyncio.to_thread(self._made.redis.kill)
        await asyncio.sleep(self._draw.uniform(0.0, 2.0))
        await asyncio.to_thread(self._made.redis.start)
        self.last_redis_fault = time.monotonic()

    async def _fill_redis_disk(self) -> None:
        assert self._redis_disk is not None
        self.last_redis_fault = time.monotonic()
        try:
            await self._redis_disk.fill()
            await asyncio.sleep(self._draw.uniform(*_PAUSES_SECONDS))
        finally:
            await self._redis_disk.heal()
            self.last_redis_fault = time.monotonic()


async def _end(process: Process, number: signal.Signals) -> None:
    process.process.send_signal(number)
    status = await asyncio.to_thread(process.process.wait, 30)
    if number is _SIGTERM:
        assert status == 0, f"{process.log.stem} ended with status {status}"
