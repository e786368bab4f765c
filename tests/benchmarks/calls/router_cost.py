"""What a call costs the router, beside the router of another commit.

Both trees are installed apart. Two routers, one of each, run side by side on one Redis and one worker without a model,
which answers at once (tests/unit/router/fake_worker.py, in a process of its own); they understand one another's data.
Calls are made one at a time, in groups: of the one router, of the other twice, of the one again. Two equal processes
differ by some percent for as long as they live (addresses), hence several pairs, one after the other, of which every
second one begins with the other router, and an interval over pairs.

What is compared is processor time as the scheduler counts it, so that whoever else is on the machine hardly matters:
the geometric mean of the ratio over pairs. Exits with 1 when the upper end of its 95 % interval is above 1.05 for one
of the calls. How long calls took is told, and judged by nobody. How old tokens are when a client has them is compared
likewise (tests/benchmarks/calls/token_ages.py).
"""

import asyncio
import io
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kakeya_bench.compare.processes import cpu_seconds_of
from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_bench.rivals.command import CommandFailed, PythonEnvironment
from kakeya_bench.statistics import intervals
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.calls import side_by_side, token_ages, worker_without_model
from tests.benchmarks.calls.side_by_side import Caller, Kind
from tests.benchmarks.pairs import in_turn
from tests.integration.processes import Runtime

ROOT = Path(__file__).parents[3]
PARTS = ("proto/python", "shared", "services/router")
"""The router and what it needs of ours; what that needs has the versions of today's constraints.txt in both."""
SIDES = ("base", "here")
CALLS = ("CreateSession", "AppendTokens", "Generate")
BOUND = 1.05
NUM_APPENDED = 30
NUM_GENERATED = 64
GROUP = 16
"""Sessions at once; the worker has room for those of both routers."""

_NUM_WARM_GROUPS = 4
_SETTLE_SECONDS = 0.02  # what goes on after an answer belongs to the calls before it


class RouterSettings(BenchSettings):
    base: str = setting(help="the commit to compare with what is here", metavar="COMMIT")
    pairs: int = setting(12, "pairs of routers, one after the other", reason="ten minutes", metavar="N", ge=0)
    rounds: int = setting(12, "rounds of answers whose tokens' ages are told", reason="two minutes", metavar="N", ge=0)
    calls: int = setting(256, "calls of each kind on each router of a pair", reason="seconds", metavar="N", ge=1)


def commit_of(name: str) -> str:
    """The full id of a commit. Raises CommandFailed: there is none of this name."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        raise CommandFailed(f"{name!r} is no commit of this repository")
    return found.stdout.strip()


def extracted(commit: str, directory: Path) -> Path:
    """The router's parts as they were, below a directory."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, *PARTS]
    with tarfile.open(fileobj=io.BytesIO(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)) as parts:
        parts.extractall(directory, filter="data")
    return directory


def installed(tree: Path, directory: Path) -> Path:
    """Installs a tree's router into an environment below a directory; returns its Python. Raises CommandFailed."""
    directory.mkdir()
    requirements = directory / "requirements.txt"
    requirements.write_text("".join(f"{tree / part}\n" for part in PARTS))
    environment = PythonEnvironment(directory / "environment", requirements)
    environment.prepare()
    return environment.python


@dataclass
class Side(Caller):
    """One of the routers.

    Attributes:
        cpu_seconds: by call, the router's processor time of each group.
    """

    pid: int = 0
    cpu_seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def measure_group(self) -> None:
        """Opens some sessions, appends to each and generates on each."""
        async with self._counted("CreateSession"):
            opened = [await self.create() for _ in range(GROUP)]
        async with self._counted("AppendTokens"):
            for session_id in opened:
                await self.append(session_id, NUM_APPENDED)
        async with self._counted("Generate"):
            for session_id in opened:
                await self.generate(session_id, NUM_GENERATED)
        for session_id in opened:
            await self.close(session_id)
        await asyncio.sleep(_SETTLE_SECONDS)

    @asynccontextmanager
    async def _counted(self, name: str) -> AsyncIterator[None]:
        before = cpu_seconds_of(self.pid)
        yield
        await asyncio.sleep(_SETTLE_SECONDS)
        self.cpu_seconds[name].append(cpu_seconds_of(self.pid) - before)


Pair = Sequence[Side]
"""In the order of SIDES."""


async def compare(made: Sequence[Runtime], num_groups: int, on_group: Callable[[str], None], *, in_order: bool) -> Pair:
    """Measures so many groups of each router; they are in the order of SIDES."""
    async with side_by_side.stubs(made) as stubs:
        pair = [Side(stub, pid=each.routers[0].process.pid) for stub, each in zip(stubs, made, strict=True)]
        sides = pair if in_order else pair[::-1]
        for _ in range(_NUM_WARM_GROUPS):
            for side in sides:
                await side.measure_group()
        for side in sides:
            side.seconds.clear()
            side.cpu_seconds.clear()
        for order in in_turn(sides, num_groups):
            for side in order:
                await side.measure_group()
            on_group("groups of calls")
    return pair


def measured(
    kinds: Sequence[Kind], directory: Path, num_pairs: int, num_groups: int, on_group: Callable[[str], None]
) -> Iterator[Pair]:
    """One pair after the other; every second one begins with the other router. The hashes of both are the same."""
    for number in range(num_pairs):
        seeded = [replace(kind, environment={**kind.environment, "PYTHONHASHSEED": str(number)}) for kind in kinds]
        in_order = number % 2 == 0
        with (
            side_by_side.routers(seeded, directory, in_order=in_order) as made,
            worker_without_model.joining(made),
        ):
            yield asyncio.run(compare(made, num_groups, on_group, in_order=in_order))


def figures(pairs: Sequence[Pair], names: Sequence[str] = SIDES, bound: float = BOUND) -> dict[str, dict[str, Any]]:
    """By call: processor time and p50 in milliseconds, the ratio of the former with its interval, by pair too.

    Args:
        names: of the two sides.
        bound: of the ratio.
    """
    found = {}
    for name in CALLS:
        num_calls = [[len(side.seconds[name]) for side in pair] for pair in pairs]
        cpu = np.array([[sum(side.cpu_seconds[name]) for side in pair] for pair in pairs]) / num_calls
        wall = np.array([[np.median(side.seconds[name]) for side in pair] for pair in pairs])  # [pairs, sides]
        logarithms = np.log(cpu[:, 1] / cpu[:, 0])
        ratio = intervals.of_mean(logarithms.tolist())
        found[name] = {
            "cpu_ms": dict(zip(names, (cpu.mean(axis=0) * 1e3).tolist(), strict=True)),
            "ratio": float(np.exp(ratio.estimate)),
            "interval_95": [float(np.exp(end)) for end in (ratio.low, ratio.high)],
            "ratio_by_pair": np.exp(logarithms).tolist(),
            "bound": bound,
            "wall_p50_ms": dict(zip(names, (wall.mean(axis=0) * 1e3).tolist(), strict=True)),
        }
    return found


def verdicts(found: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    return [
        at_most(name, "upper end of the ratio's interval", Precise(each["interval_95"][1]), Precise(each["bound"]))
        for name, each in found.items()
    ]


@bench.command(RouterSettings)
def measure(settings: RouterSettings, stage: Stage) -> Found:
    num_groups = 2 * max(1, settings.calls // (2 * GROUP))
    commit = commit_of(settings.base)
    stage.show(0.0, f"installing the routers of {commit[:12]} and of this tree")
    trees = {"base": extracted(commit, stage.directory / "tree"), "here": ROOT}
    # Nothing of this tree may be found where another was installed.
    kinds = [
        Kind(name, (), {"PYTHONPATH": ""}, str(installed(tree, stage.directory / name))) for name, tree in trees.items()
    ]
    step = stage.steps(settings.pairs * num_groups + settings.rounds, start=0.1)
    numbers = {"base": commit, "pairs": settings.pairs, "calls_per_pair": num_groups * GROUP}
    found, judged = dict[str, Any](), list[Verdict]()
    if settings.pairs:
        found |= figures([*measured(kinds, stage.directory, settings.pairs, num_groups, step)])
        judged += verdicts(found)
    if settings.rounds:
        with token_ages.standing(kinds, stage.directory / "ages") as made:
            of_ages = token_ages.figures(asyncio.run(token_ages.compare(made, settings.rounds, step)), SIDES)
        found |= of_ages
        judged += token_ages.verdicts(of_ages)
    return {**numbers, **found}, judged
