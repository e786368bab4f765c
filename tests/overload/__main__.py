"""Four times the clients that there is room for, and tenants of unequal size, on a runtime of real processes.

    python -m tests.overload [--seconds N] [--seed S] [--json FILE]

Exits with 1 when the line grew beyond its bound, somebody was overtaken, a free lane stayed free beside somebody who
waited, a refusal did not say when to come back, or anything was left at the end.
"""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.integration.processes import asking_for_keys, runtime
from tests.overload.overload_run import LANES_PER_WORKER, NUM_WORKERS, ROUTER_FLAGS, Plan, run
from tests.overload.report import Report
from tests.random_checkpoint import save_random_checkpoint


def overload(directory: Path, plan: Plan, console: Console) -> Report:
    """Runs a plan on two routers and a few lanes."""
    model = save_random_checkpoint(directory / "random")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        runtime(model, directory, num_workers=0, router_flags=ROUTER_FLAGS, environment=asking_for_keys()) as made,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        made.start_router(*ROUTER_FLAGS)
        for _ in range(NUM_WORKERS):
            made.start_worker(lanes=LANES_PER_WORKER)
        made.wait_for_workers(NUM_WORKERS)
        return asyncio.run(run(made, plan, lambda name, seconds: _announce(progress, f"{name}, {seconds:.0f} s")))


def _announce(progress: Progress, description: str) -> None:
    for task in progress.tasks:
        progress.remove_task(task.id)
    progress.add_task(description, total=None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="of all stretches together (default: 300)")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"OVERLOAD_SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        report = overload(Path(directory), Plan(arguments.seconds, seed), Console(stderr=True))
    report.show(Console(width=None if sys.stdout.isatty() else 200))
    if arguments.json:
        report.write(arguments.json)
    return 1 if report.violations or report.late else 0


if __name__ == "__main__":
    sys.exit(main())
