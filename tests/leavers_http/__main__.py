"""Clients that leave the HTTP shim at random moments: nothing of them may stay, and nobody else may notice.

    python -m tests.leavers_http [--leavers N] [--seed S] [--json FILE] [--logs DIR]

Half of them ask for streams. They leave before their head is whole, in the body, before, in and after the first event,
in mid-stream, and at the very end; by closing and by a reset; up to 16 at once, in front of a real stack. Exits with 1
when 10 s later any session, lane or request is left, when the shim holds more files or threads than before or grew by
more than 64 MiB, when a client that stays gets another answer than before, or when a log complains.
"""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.integration.open_http import open_http
from tests.leavers_http.leavers_run import NUM_LANES, SHIM_FLAGS, LeaversRun, Plan
from tests.leavers_http.report import Report


def leavers_http(logs: Path, plan: Plan, console: Console) -> Report:
    """Runs a plan on a stack of its own."""
    columns = (TextColumn("leaving"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        open_http(logs, *SHIM_FLAGS, lanes=NUM_LANES) as made,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        bar = progress.add_task("clients", total=plan.num_leavers)
        run = LeaversRun(made, plan, lambda number: progress.update(bar, completed=number))
        return asyncio.run(run.run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leavers", type=int, default=1_000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to see it again")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    parser.add_argument("--logs", type=Path, default=None, help="where to keep the logs of the processes")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"LEAVERS_SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        logs = arguments.logs or Path(directory)
        logs.mkdir(parents=True, exist_ok=True)
        report = leavers_http(logs, Plan(arguments.leavers, seed), Console(stderr=True))
    report.show(Console(width=None if sys.stdout.isatty() else 200))
    if arguments.json:
        report.write(arguments.json)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
