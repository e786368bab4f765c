"""How long a stream pauses whose worker is killed, or stopped, on a machine that is quiet or busy.

    python -m tests.benchmarks.pauses [--trials N] [--busy N] [--json FILE]

Two workers of kakeya-nano serve one router. In each trial a stream is left alone; the worker of a second is killed, and
started again at its address, as `kakeya up` does it; that of a third is stopped (SIGSTOP) for longer than its lease.
`--busy N` has N processes compute all the while. A trial's pause is the longest gap between two tokens of its stream:
what a busy machine does to any stream shows in those that are left alone.

Exits with 1 when a stopped worker costs a stream two leases, or a killed one, whose death shows, a lease.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import kakeya
from tests.benchmarks import recovery
from tests.integration.processes import Process, Runtime, runtime

WINDOW = 64
BOUND_SECONDS = {"killed": recovery.LEASE_SECONDS, "stopped": 2 * recovery.LEASE_SECONDS}
_BUSY = "while True: sum(range(100_000))"


@dataclass
class Pauses:
    """In seconds, one a trial."""

    num_busy: int
    alone: list[float] = field(default_factory=list)
    killed: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)

    @property
    def is_within_bounds(self) -> bool:
        return all(max(getattr(self, name)) < bound for name, bound in BOUND_SECONDS.items())


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


async def measure(made: Runtime, num_trials: int, pauses: Pauses) -> None:
    async with kakeya.AsyncClient(made.address) as client:
        for number in range(1, num_trials + 1):
            await _both_serve(made)
            pauses.alone.append(await recovery.longest_gap(made, client, _leave_alone))
            pauses.killed.append(await recovery.longest_gap(made, client, lambda worker: _restart(made, worker)))
            await _both_serve(made)
            pauses.stopped.append(await recovery.longest_gap(made, client, recovery.stop))
            last = (
                f"alone {pauses.alone[-1]:.2f} s, killed {pauses.killed[-1]:.2f} s, stopped {pauses.stopped[-1]:.2f} s"
            )
            print(f"{number:3} {last}", flush=True)


async def _both_serve(made: Runtime) -> None:
    """A worker that was lost in the trial before has joined again; else there is nobody to go on with the stream."""
    while True:
        await asyncio.sleep(recovery.LEASE_SECONDS + 1.0)  # what is gone is listed for no longer
        if len(await asyncio.to_thread(made.list_workers)) == 2:
            return


async def _leave_alone(worker: Process) -> None:
    pass


async def _restart(made: Runtime, worker: Process) -> None:
    """Kills it; another takes its place at the same address."""
    await asyncio.to_thread(worker.kill)
    made.workers.remove(worker)
    made.start_worker("--window", str(WINDOW), lanes=4, address=worker.address)


def show(pauses: Pauses) -> None:
    for name in ("alone", *BOUND_SECONDS):
        p50, p95 = np.percentile(getattr(pauses, name), [50, 95])
        longest = max(getattr(pauses, name))
        bound = f"; bound {BOUND_SECONDS[name]:g} s" if name in BOUND_SECONDS else ""
        print(f"{name:7} p50 {p50:.2f} s, p95 {p95:.2f} s, max {longest:.2f} s{bound}")
    print(f"{len(pauses.killed)} trials beside {pauses.num_busy} busy processes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=50, help="of each kind (default: 50)")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile (default: 0)")
    parser.add_argument("--json", type=Path, default=None, help="where to write the pauses")
    arguments = parser.parse_args()
    pauses = Pauses(arguments.busy)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        environment = {"KAKEYA_WORKER_SNAPSHOTS": f"{directory}/snapshots"}
        with runtime(recovery.model(WINDOW, directory), directory, num_workers=0, environment=environment) as made:
            for _ in range(2):
                recovery.start_worker(made, WINDOW)
            made.wait_for_workers(2)
            with busy(arguments.busy):
                asyncio.run(measure(made, arguments.trials, pauses))
    show(pauses)
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(pauses), indent=1))
    return 0 if pauses.is_within_bounds else 1


if __name__ == "__main__":
    sys.exit(main())
