"""Hostile calls on a runtime of real processes: nothing may break, leak, or show in what others get.

    python -m tests.fuzz [--calls N] [--seed S] [--json FILE] [--logs DIR]

Exits with 1 when something happened that must not. The seed decides what call n sends, as far as that does not
depend on answers.
"""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz.fuzz_run import NUM_LANES, ROUTER_FLAGS, WORKER_FLAGS, FuzzRun, Plan
from tests.fuzz.report import Report
from tests.integration.processes import Runtime, asking_for_keys, runtime
from tests.random_checkpoint import save_random_checkpoint


def fuzz(directory: Path, logs: Path, plan: Plan, console: Console) -> Report:
    """Runs a plan on a runtime of its own."""
    model = save_random_checkpoint(directory / "demo")
    columns = (TextColumn("fuzzing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        runtime(
            model,
            logs,
            num_workers=0,
            router_flags=ROUTER_FLAGS,
            environment=asking_for_keys(),
        ) as made,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        _complete(made)
        bar = progress.add_task("calls", total=plan.num_calls)
        run = FuzzRun(made, plan, lambda number: progress.update(bar, completed=number))
        return asyncio.run(run.run())


def _complete(made: Runtime) -> None:
    """A second router, since any router serves any session, and the worker."""
    made.start_router(*ROUTER_FLAGS)
    made.start_worker(*WORKER_FLAGS, lanes=NUM_LANES)
    made.wait_for_workers(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=100_000, help="how many (default: 100000)")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to see it again")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    parser.add_argument("--logs", type=Path, default=None, help="where to keep the logs of the processes")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"FUZZ_SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        logs = arguments.logs or Path(directory)
        logs.mkdir(parents=True, exist_ok=True)
        report = fuzz(Path(directory), logs, Plan(arguments.calls, seed), Console(stderr=True))
    report.show(Console(width=None if sys.stdout.isatty() else 200))
    if arguments.json:
        report.write(arguments.json)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
