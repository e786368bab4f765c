"""One run: many clients that leave, a witness beside them, and a look at what is left."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.fuzz.process_watch import ProcessWatch
from tests.integration.leftovers import Pool, leftovers
from tests.integration.processes import Process, Runtime
from tests.leavers_http.leaver import Departures, leave_as_told
from tests.leavers_http.moments import draw
from tests.leavers_http.report import Report
from tests.leavers_http.shim_watch import Holdings, holdings, samples
from tests.leavers_http.witness import Witness

NUM_AT_ONCE = 16
NUM_LANES = 3 * NUM_AT_ONCE  # two answers each, and those that are just being closed
SESSION_TTL_SECONDS = 5
SHIM_FLAGS = (f"--session-ttl-seconds={SESSION_TTL_SECONDS}",)
SETTLE_SECONDS = 10.0
_POLL_SECONDS = 0.1
_GAUGES = ("kakeya_http_in_flight_requests", "kakeya_http_waiting_requests")


@dataclass(frozen=True)
class Plan:
    num_leavers: int
    seed: int


class LeaversRun:
    """Args:
    made: a runtime with a shim, not used by anybody else.
    on_progress: told the number of clients that have left.
    """

    def __init__(self, made: Runtime, plan: Plan, on_progress: Callable[[int], None]) -> None:
        self._made = made
        self._plan = plan
        self._on_progress = on_progress
        self._shim: Process = made.shims[0]
        self._pool = Pool(made.list_workers()[0].pool)
        self._watch = ProcessWatch(made, frozenset())
        self._departures = Departures()
        self._num_left = 0

    async def run(self) -> Report:
        whole_seconds = await self._warm_up()
        before = await self._held()
        witness = Witness(self._shim.address)
        began = time.monotonic()
        await self._beside(witness, whole_seconds)
        seconds = time.monotonic() - began
        remains, settled_seconds = await self._settle()
        await asyncio.to_thread(witness.ask)
        return Report(
            seed=self._plan.seed,
            seconds=seconds,
            departures=self._departures,
            witness=witness,
            remains=[*remains, *self._watch.problems()],
            settled_seconds=settled_seconds,
            num_expired=_num_expired(self._made.routers),
            num_noticed=int(samples(self._shim)["kakeya_http_disconnected_requests_total"]),
            before=before,
            after=await self._held(),
        )

    async def _warm_up(self) -> float:
        """As many whole answers at once as there will be clients; seconds that one took in the mean."""
        clients = [Witness(self._shim.address) for _ in range(NUM_AT_ONCE)]
        for _ in range(2):
            await asyncio.gather(*(asyncio.to_thread(client.ask) for client in clients))
        return sum(client.seconds[-1] for client in clients) / len(clients)

    async def _held(self) -> Holdings:
        """Once the connections of this run's own questions are closed."""
        await asyncio.sleep(1.0)
        return holdings(self._shim)

    async def _beside(self, witness: Witness, whole_seconds: float) -> None:
        stop = asyncio.Event()
        asking = asyncio.create_task(witness.run(stop))
        leaves = iter(range(self._plan.num_leavers))
        async with asyncio.TaskGroup() as group:
            for _ in range(NUM_AT_ONCE):
                group.create_task(self._leave_on(leaves, whole_seconds))
        stop.set()
        await asking

    async def _leave_on(self, numbers: Iterator[int], whole_seconds: float) -> None:
        for number in numbers:
            leave = draw(random.Random(f"{self._plan.seed}/{number}"), number)
            await leave_as_told(self._shim.address, leave, whole_seconds, self._departures)
            self._num_left += 1
            self._on_progress(self._num_left)

    async def _settle(self) -> tuple[list[str], float]:
        """What is still there in the end, and after how many seconds nothing was."""
        began = time.monotonic()
        while True:
            found = await asyncio.to_thread(self._remains)
            seconds = time.monotonic() - began
            if not found or seconds > SETTLE_SECONDS:
                return found, seconds
            await asyncio.sleep(_POLL_SECONDS)

    def _remains(self) -> list[str]:
        gauges = samples(self._shim)
        counted = [f"{name} is {gauges[name]:g}" for name in _GAUGES if gauges[name]]
        return counted + leftovers(self._made, self._pool)


def _num_expired(routers: list[Process]) -> int:
    """Sessions that nobody closed: their time to live ended them."""
    lines = [line for router in routers for line in router.log.read_text().splitlines() if line.startswith("{")]
    return sum(json.loads(line).get("event") == "session expired" for line in lines)
