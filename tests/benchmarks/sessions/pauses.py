"""How long a stream pauses whose worker is killed, or stopped, on a machine that is quiet or busy.

Two workers of kakeya-nano serve one router. In each trial a stream is left alone; the worker of a second is killed, and
started again at its address, as `kakeya up` does it; that of a third is stopped (SIGSTOP) for longer than routers wait.
`--busy N` has N processes compute all the while. A trial's pause is the longest gap between two tokens of its stream:
what a busy machine does to any stream shows in those that are left alone.

Exits with 1 when a stopped worker costs a stream 10 s, or a killed one, whose death shows, 5 s.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import kakeya
from kakeya_bench.report.quantities import Seconds
from kakeya_bench.report.verdict import at_most
from kakeya_bench.statistics.distribution import percentile
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.sessions import recovery
from tests.integration.processes import Process, Runtime

WINDOW = 64
BOUND_SECONDS = {"killed": recovery.GIVEN_UP_SECONDS, "stopped": 2 * recovery.GIVEN_UP_SECONDS}
_BUSY = "while True: sum(range(100_000))"

Pauses = dict[str, list[Seconds]]
"""In seconds, one a trial: alone, killed, stopped."""


class PausesSettings(BenchSettings):
    trials: int = setting(50, "trials of each kind", reason="half an hour", metavar="N", ge=1)
    busy: int = setting(0, "processes that compute meanwhile", reason="a quiet machine", metavar="N", ge=0)


@contextmanager
def busy(num_processes: int) -> Iterator[None]:
    """Computes meanwhile, on as many processors as there are."""
    processes = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def trials(made: Runtime, number: int, on_trial: Callable[[str], None]) -> Pauses:
    pauses: Pauses = {"alone": [], "killed": [], "stopped": []}
    async with kakeya.AsyncClient(made.address) as client:
        for _ in range(number):
            await _both_serve(made)
            pauses["alone"].append(await recovery.longest_gap(made, client, _leave_alone))
            pauses["killed"].append(await recovery.longest_gap(made, client, lambda worker: _restart(made, worker)))
            await _both_serve(made)
            pauses["stopped"].append(await recovery.longest_gap(made, client, recovery.stop))
            on_trial(", ".join(f"{name} {taken[-1]:.2f} s" for name, taken in pauses.items()))
    return pauses


async def _both_serve(made: Runtime) -> None:
    """A worker that was lost in the trial before has joined again; else there is nobody to go on with the stream."""
    while True:
        await asyncio.sleep(recovery.GIVEN_UP_SECONDS + 1.0)  # what is gone is listed for no longer
        if len(await asyncio.to_thread(made.list_workers)) == 2:
            return


async def _leave_alone(worker: Process) -> None:
    pass


async def _restart(made: Runtime, worker: Process) -> None:
    """Kills it; another takes its place at the same address."""
    await asyncio.to_thread(worker.kill)
    made.workers.remove(worker)
    recovery.start_worker(made, WINDOW, worker.address)


@bench.command(PausesSettings)
def measure(settings: PausesSettings, stage: Stage) -> Found:
    with recovery.two_workers(WINDOW, stage.directory / "runtime") as made, busy(settings.busy):
        pauses = asyncio.run(trials(made, settings.trials, stage.steps(settings.trials)))
    percentiles = {name: {"p50": percentile(taken, 50), "p95": percentile(taken, 95)} for name, taken in pauses.items()}
    verdicts = [
        at_most(name, "longest pause", max(pauses[name]), Seconds(bound)) for name, bound in BOUND_SECONDS.items()
    ]
    return {"num_busy": settings.busy, **pauses, "percentiles": percentiles}, verdicts
