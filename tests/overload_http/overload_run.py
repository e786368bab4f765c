"""One run: as many clients as there are places, then four times as many, and a look at what is left."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.process_watch import ProcessWatch
from tests.integration.leftovers import Pool, leftovers
from tests.integration.processes import Process, Runtime
from tests.leavers_http.shim_watch import samples
from tests.overload_http.clients import Client, Experience
from tests.overload_http.place_watch import PlaceWatch
from tests.overload_http.report import Report

NUM_PLACES = 4  # of the shim, and lanes of the worker
QUEUE_LENGTH = 4
MAX_WAIT_SECONDS = 2.0
OVERLOAD = 4
SHIM_FLAGS = (
    f"--max-in-flight={NUM_PLACES}",
    f"--queue-length={QUEUE_LENGTH}",
    f"--queue-max-wait-s={MAX_WAIT_SECONDS:g}",
    "--session-ttl-seconds=5",
)
# The line and the places hold half of the clients; these few keep it full, and the others come when they are told to.
_NUM_HASTY = OVERLOAD * NUM_PLACES // 4
_ALONE_SHARE = 0.25
_WARM_SECONDS = 1.0  # the first request waits for the tokenizer
_SETTLE_SECONDS = 10.0


@dataclass(frozen=True)
class Plan:
    seconds: float


async def run(made: Runtime, plan: Plan, on_stretch: Callable[[str, float], None]) -> Report:
    """Args:
    on_stretch: told the name and the seconds of each stretch as it begins.
    """
    shim, pool = made.shims[0], Pool(made.list_workers()[0].pool)
    logs = ProcessWatch(made, frozenset())
    watch = PlaceWatch(shim)
    watching = asyncio.create_task(watch.run())
    few = [_client(shim, number) for number in range(NUM_PLACES)]
    await _stretch(few, _WARM_SECONDS)
    alone_seconds = _ALONE_SHARE * plan.seconds
    on_stretch("no more clients than places", alone_seconds)
    alone = await _stretch(few, alone_seconds)
    on_stretch(f"{OVERLOAD} times as many", plan.seconds)
    crowd = [_client(shim, number, is_patient=number >= _NUM_HASTY) for number in range(OVERLOAD * NUM_PLACES)]
    overloaded = await _stretch(crowd, plan.seconds)
    assert not watching.done(), "nobody watched the line to the end"
    watching.cancel()
    remains = await _settle(made, shim, pool)
    return Report(
        alone=alone,
        overloaded=overloaded,
        watch=watch,
        num_places=NUM_PLACES,
        queue_length=QUEUE_LENGTH,
        max_wait_seconds=MAX_WAIT_SECONDS,
        remains=[*remains, *logs.problems()],
    )


def _client(shim: Process, number: int, *, is_patient: bool = True) -> Client:
    return Client(shim.address, number, streams=number % 2 == 0, is_patient=is_patient)


async def _stretch(clients: list[Client], seconds: float) -> Experience:
    experience, stop = Experience(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run(experience, stop))
        await asyncio.sleep(seconds)
        stop.set()
    return experience


async def _settle(made: Runtime, shim: Process, pool: Pool) -> list[str]:
    """What is still there some seconds later."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while (found := await asyncio.to_thread(_remains, made, shim, pool)) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    return found


def _remains(made: Runtime, shim: Process, pool: Pool) -> list[str]:
    gauges = samples(shim)
    names = ("kakeya_http_in_flight_requests", "kakeya_http_waiting_requests")
    return [f"{name} is {gauges[name]:g}" for name in names if gauges[name]] + leftovers(made, pool)
