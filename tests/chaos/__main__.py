"""Sessions on a runtime of real processes that are killed, stopped and ended at random, held against undisturbed ones.

    python -m tests.chaos [--faults N] [--sessions N] [--seed S] [--no-redis] [--json FILE] [--keep DIR]

Exits with 1 when a session's tokens differ, a client saw an error while Redis was well, or an INTERNAL one at any time,
or anything was left at the end.
"""

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.chaos.faulty_disk import FaultyDisk
from tests.chaos.redis_disk import RedisDisk, redis_disk
from tests.chaos.run import NUM_ROUTERS, ROUTER_FLAGS, Outcome, Plan, run
from tests.integration.processes import runtime
from tests.random_checkpoint import save_random_checkpoint
from tests.small_disk import CannotMount

_SHOWN = 20


def chaos(directory: Path, plan: Plan, console: Console) -> Outcome:
    """Runs a plan on a runtime of its own."""
    model, snapshots = save_random_checkpoint(directory / "random"), directory / "snapshots"
    disk = FaultyDisk(snapshots, directory)
    environment = disk.environment | {
        "KAKEYA_WORKER_SNAPSHOTS": str(snapshots),
        "KAKEYA_WORKER_SHUTDOWN_GRACE_SECONDS": "1",
        "KAKEYA_WORKER_SNAPSHOT_SWEEP_SECONDS": "5",
        "KAKEYA_ROUTER_SHUTDOWN_GRACE_SECONDS": "1",
    }
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        _own_disk(directory, console) as own,
        runtime(
            model,
            directory,
            num_workers=0,
            router_flags=ROUTER_FLAGS,
            environment=environment,
            redis=own.redis if own else None,
        ) as made,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        for _ in range(NUM_ROUTERS - 1):
            made.start_router(*ROUTER_FLAGS)
        task = progress.add_task("", total=None)

        def show(what: str, number: int, total: int) -> None:
            progress.update(task, description=what, completed=number, total=total)

        return asyncio.run(run(made, plan, snapshots, disk, own, show))


@contextmanager
def _own_disk(directory: Path, console: Console) -> Iterator[RedisDisk | None]:
    """None, which is said, where no disk can be made: then Redis' disk is never full."""
    with ExitStack() as mounted:
        try:
            disk = mounted.enter_context(redis_disk(directory))
        except CannotMount as error:
            console.print(f"Redis' disk is not filled: {error}", markup=False)
            disk = None
        yield disk


def show(outcome: Outcome, console: Console) -> None:
    console.print(f"{outcome.num_sessions} sessions, {sum(outcome.faults.values())} faults")
    for name, count in outcome.faults.items():
        console.print(f"  {count:4d}  {name}")
    for title, lines in (
        ("differ from an undisturbed run", outcome.differing),
        ("ended with an error", outcome.errors),
        ("ended with an error around a fault of Redis", outcome.excused),
        ("things were left at the end", outcome.leaks),
    ):
        console.print(f"{len(lines)} {title}")
        if lines is outcome.excused:
            console.print("".join(f"    {count:4d}  {kind}\n" for kind, count in outcome.excused_kinds.items()), end="")
        for line in lines[:_SHOWN]:
            console.print(f"    {line}", markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=500, help="at least so many")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run")
    parser.add_argument("--no-redis", action="store_true", help="Redis is left alone")
    parser.add_argument("--json", type=Path, default=None, help="where to write the outcome")
    parser.add_argument("--keep", type=Path, default=None, help="where logs and snapshots are kept")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"CHAOS_SEED={seed}", flush=True)
    plan = Plan(arguments.sessions, arguments.faults, seed, with_redis=not arguments.no_redis)
    with nullcontext(arguments.keep) if arguments.keep else tempfile.TemporaryDirectory() as directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        outcome = chaos(Path(directory), plan, Console(stderr=True))
    show(outcome, Console(width=None if sys.stdout.isatty() else 200))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(outcome) | {"seed": seed}, indent=1))
    return 0 if outcome.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
