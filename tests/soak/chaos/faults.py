"""What is done to a runtime: each fault is healed before the next of its kind."""

import asyncio
import math
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import kakeya
from tests.integration.processes import Process, Runtime
from tests.redis_groups import SentinelGroup
from tests.soak.chaos.faulty_disk import FaultyDisk
from tests.soak.chaos.network import Network
from tests.soak.chaos.redis_faults import RedisDisk, RedisLosses

_SIGKILL, _SIGTERM = signal.SIGKILL, signal.SIGTERM
_PAUSES_SECONDS = (0.2, 6.0)  # shorter and longer than a worker's lease
_REDIS_ECHO_SECONDS = 40.0
_BY_ITSELF = "a failover that nothing here caused"


@dataclass(frozen=True)
class Ground:
    """What is disturbed.

    Attributes:
        router_flags: of those that take a router's place.
        snapshots: directory of the workers' snapshots, on `disk`.
        redis_disk: None: Redis' disk is never full.
        group: Redis has a replica, to which it fails over: of its faults there is that alone, as often as all others
            together; None: it has none.
        is_replicated: the replica has all that is acknowledged.
    """

    made: Runtime
    router_flags: tuple[str, ...]
    snapshots: Path
    disk: FaultyDisk
    redis_disk: RedisDisk | None
    has_redis_faults: bool
    group: SentinelGroup | None = None
    is_replicated: bool = True


class Faults:
    """Kills, stops and ends the processes of a runtime, and starts others in their place.

    Attributes:
        counts: how often each fault was caused.
        latest: its name, and `time.monotonic` of when it began; None: there was none.
        losses: those of Redis.
        last_redis_fault: `time.monotonic` of the latest one.
    """

    def __init__(self, ground: Ground, network: Network, draw: random.Random) -> None:
        self._ground = ground
        self._made = ground.made
        self._network = network
        self._draw = draw
        self.losses = losses = RedisLosses(ground.made.redis, draw)
        disk, redis_disk = ground.disk, ground.redis_disk
        kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "kill -9 a worker": (4, lambda: self._end_worker(_SIGKILL)),
            "kill -9 the worker of a fork before its first turn": (3, self._end_worker_of_fork),
            "SIGTERM a worker": (3, lambda: self._end_worker(_SIGTERM)),
            "SIGSTOP a worker": (3, self._pause_worker),
            "kill -9 a router": (2, lambda: self._end_router(_SIGKILL)),
            "SIGTERM a router": (2, lambda: self._end_router(_SIGTERM)),
            "cut connections": (2, self._cut),
            "silence connections": (2, self._silence),
            "fill the disk": (1, lambda: self._for_a_while(disk.fill, disk.heal)),
            "slow the disk": (1, lambda: self._for_a_while(disk.slow, disk.heal)),
        }
        if ground.group is not None:
            fails_over = self._restart_redis if ground.is_replicated else lambda: self._lose(self._restart_redis)
            kinds["kill -9 the primary"] = (sum(weight for weight, _ in kinds.values()), fails_over)
        elif ground.has_redis_faults:
            kinds["kill -9 Redis"] = (1, self._restart_redis)
            if redis_disk is not None:
                kinds["fill Redis' disk"] = (1, lambda: self._fill_redis_disk(redis_disk))
            kinds["set Redis back"] = (1, lambda: self._lose(losses.set_back))
            kinds["evict keys"] = (1, lambda: self._lose(losses.evict))
            kinds["overwrite journals"] = (1, lambda: self._lose(losses.overwrite))
        self._kinds = kinds
        self.counts: dict[str, int] = dict.fromkeys(kinds, 0)
        self.last_redis_fault = self._last_loss = -_REDIS_ECHO_SECONDS
        self._epoch = 0 if ground.group is None else ground.group.epoch
        self.latest: tuple[str, float] | None = None
        self._next_fork: asyncio.Future[Process | None] | None = None  # of whom the fault is waiting for

    @property
    def redis_is_to_blame(self) -> bool:
        """Whether an error that a client sees now may come from a Redis that was away."""
        return time.monotonic() - self.last_redis_fault < _REDIS_ECHO_SECONDS

    def may_have_lost(self, since: float) -> bool:
        """Whether a session of that time may have lost something for good, which its client is told then."""
        return self._last_loss > since

    def look_for_failovers(self) -> None:
        """Sentinel takes a primary for down where the machine holds that up: a fault like those that are caused."""
        group = self._ground.group
        if group is None or self.last_redis_fault == math.inf or (epoch := group.epoch) == self._epoch:
            return
        self._epoch, self.last_redis_fault = epoch, time.monotonic()
        self.counts[_BY_ITSELF] = self.counts.get(_BY_ITSELF, 0) + 1
        if not self._ground.is_replicated:
            self._last_loss = self.last_redis_fault

    async def cause(self) -> str:
        """One at random, and its cure; returns its name."""
        names = list(self._kinds)
        name = self._draw.choices(names, [self._kinds[each][0] for each in names])[0]
        self.counts[name] += 1
        self.latest = name, time.monotonic()
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
        pid = worker.process.pid
        await self._for_a_while(lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT))
        await self._network.joined(worker)

    async def _cut(self) -> None:
        self._draw.choice(self._network.links).cut()

    async def _silence(self) -> None:
        """Both ends believe in the connection, which goes on later or breaks."""
        link, breaks = self._draw.choice(self._network.links), self._draw.random() < 0.5

        def end() -> None:
            if breaks:
                link.cut()
            link.flow()

        await self._for_a_while(link.silence, end)

    async def _for_a_while(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        begin()
        try:
            await asyncio.sleep(self._draw.uniform(*_PAUSES_SECONDS))
        finally:
            end()

    async def _end_router(self, number: signal.Signals) -> None:
        """Its successor listens on the same port, as behind a supervisor."""
        at = self._draw.randrange(len(self._made.routers))
        router = self._made.routers.pop(at)
        await _end(router, number)
        restarted = await asyncio.to_thread(
            lambda: self._made.start_router(*self._ground.router_flags, address=router.address)
        )
        self._made.routers.remove(restarted)
        self._made.routers.insert(at, restarted)

    @asynccontextmanager
    async def _blamed_on_redis(self) -> AsyncIterator[None]:
        # A failover takes minutes where Sentinel was held up.
        self.last_redis_fault = time.monotonic() if self._ground.group is None else math.inf
        try:
            yield
        finally:
            self.last_redis_fault = time.monotonic()

    async def _restart_redis(self) -> None:
        async with self._blamed_on_redis():
            await asyncio.to_thread(self._made.redis.kill)
            await asyncio.sleep(self._draw.uniform(0.0, 2.0))
            await asyncio.to_thread(self._made.redis.start)
            if (group := self._ground.group) is not None:
                self._epoch = await asyncio.to_thread(lambda: group.epoch)

    async def _fill_redis_disk(self, disk: RedisDisk) -> None:
        async with self._blamed_on_redis():
            try:
                await disk.fill()
                await asyncio.sleep(self._draw.uniform(*_PAUSES_SECONDS))
            finally:
                await disk.heal()

    async def _lose(self, loses: Callable[[], Awaitable[None]]) -> None:
        async with self._blamed_on_redis():
            await loses()
        self._last_loss = time.monotonic()


async def _end(process: Process, number: signal.Signals) -> None:
    process.process.send_signal(number)
    status = await asyncio.to_thread(process.process.wait, 30)
    if number is _SIGTERM:
        assert status == 0, f"{process.log.stem} ended with status {status}"
