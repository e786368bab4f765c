"""Requests that the OpenAPI document allows and forbids, on a shim in front of a real stack.

    python -m tests.fuzz_http [--cases N] [--seed S] [--json FILE] [--logs DIR]

schemathesis reads GET /openapi.json and makes the cases: those at the borders of every schema and every method that is
not served, then drawn ones. Exits with 1 when a status, a content type, a body or an event was not as documented, when
anything failed unforeseen, when what is forbidden was accepted or what is allowed refused (but for the rules of
vocabulary_rules.py), or when anything was left at the end.
"""

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz_http.fuzz_run import FuzzRun, Plan
from tests.fuzz_http.report import Report
from tests.fuzz_http.stack import stack


def fuzz_http(logs: Path, plan: Plan, console: Console) -> Report:
    """Runs a plan on a stack of its own."""
    columns = (TextColumn("fuzzing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with stack(logs) as made, Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("cases", total=plan.num_cases)
        return FuzzRun(made, plan, lambda number: progress.update(bar, completed=number)).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2_400, help="how many (default: 2400)")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to see it again")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    parser.add_argument("--logs", type=Path, default=None, help="where to keep the logs of the processes")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"FUZZ_HTTP_SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        logs = arguments.logs or Path(directory)
        logs.mkdir(parents=True, exist_ok=True)
        report = fuzz_http(logs, Plan(arguments.cases, seed), Console(stderr=True))
    report.show(Console(width=None if sys.stdout.isatty() else 200))
    if arguments.json:
        report.write(arguments.json)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
