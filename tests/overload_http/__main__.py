"""Four times the clients that the HTTP shim has places for, in front of a real stack.

    python -m tests.overload_http [--seconds N] [--json FILE] [--logs DIR]

At first there are as many clients as places: what their answers take with all lanes busy is the service time. Then
four times as many. Exits with 1 when anybody got another status than 200, 429 or 503, a refusal did not say when to
come back, the line grew beyond its bound, a wait beyond its own, an accepted answer was not whole, the 99th percentile
of accepted requests was above the longest wait and the service time's, or anything was left at the end.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.integration.open_http import open_http
from tests.overload_http.overload_run import NUM_PLACES, SHIM_FLAGS, Plan, run
from tests.overload_http.report import Report


def overload_http(logs: Path, plan: Plan, console: Console) -> Report:
    """Runs a plan on a stack of its own."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        open_http(logs, *SHIM_FLAGS, lanes=NUM_PLACES) as made,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        bar = progress.add_task("", total=None)
        return asyncio.run(
            run(
                made,
                plan,
                lambda name, seconds: progress.update(bar, description=f"{name}, {seconds:.0f} s"),
            )
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of overload (default: 60)")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    parser.add_argument("--logs", type=Path, default=None, help="where to keep the logs of the processes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        logs = arguments.logs or Path(directory)
        logs.mkdir(parents=True, exist_ok=True)
        report = overload_http(logs, Plan(arguments.seconds), Console(stderr=True))
    report.show(Console(width=None if sys.stdout.isatty() else 200))
    if arguments.json:
        report.write(arguments.json)
    return 1 if report.violations or report.late else 0


if __name__ == "__main__":
    sys.exit(main())
