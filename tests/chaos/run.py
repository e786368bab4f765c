"""Many sessions at once, and faults in the middle of them."""

import asyncio
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import kakeya
from tests.chaos.conversation import Heard, Script, hold
from tests.chaos.faults import Faults
from tests.chaos.faulty_disk import FaultyDisk
from tests.chaos.network import Network
from tests.chaos.redis_disk import RedisDisk
from tests.chaos.redis_losses import expire_all
from tests.integration.leftovers import Pool, leftovers
from tests.integration.processes import Runtime

NUM_WORKERS, NUM_ROUTERS, LANES_PER_WORKER = 3, 2, 36
ROUTER_FLAGS = (
    "--heartbeat-interval-seconds=0.3",
    "--worker-lease-seconds=2.5",
    "--operation-lease-seconds=1.5",
    "--reap-interval-seconds=0.2",
    "--recovery-seconds=0.2",
)
# With one worker lost, each of the others has lanes for most of them, and for forks beside their sources.
_NUM_AT_ONCE = 24
_NUM_SCRIPTS = 24
_BETWEEN_SECONDS = (0.2, 1.5)
_SETTLE_SECONDS = 30.0

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Plan:
    """How much of it; runs of one seed cause the same faults in the same order, at times that differ."""

    num_sessions: int
    num_faults: int
    seed: int
    with_redis: bool


# How a client is told that Redis has lost what its session was: it is gone, shorter than was acknowledged, or LOST.
_OF_A_LOSS = (
    kakeya.SessionNotFound,
    kakeya.SessionClosed,
    kakeya.HistoryLengthMismatch,
    kakeya.WorkerLost,
    kakeya.OperationStopped,
    kakeya.BoundaryNotReachable,
)


@dataclass
class Outcome:
    """What became of the sessions.

    Attributes:
        faults: how often each was caused.
        differing: sessions whose tokens are not those of an undisturbed one.
        errors: what clients saw while Redis was well.
        excused: what they saw when it was not.
        leaks: what was left at the end.
    """

    num_sessions: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    excused: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)

    @property
    def excused_kinds(self) -> dict[str, int]:
        """How many of them saw which error."""
        return dict(Counter(line.split(": ")[1] for line in self.excused).most_common())

    @property
    def is_well(self) -> bool:
        return not (self.differing or self.errors or self.leaks)


async def run(
    made: Runtime,
    plan: Plan,
    snapshots: Path,
    disk: FaultyDisk,
    redis_disk: RedisDisk | None,
    progress: Progress,
) -> Outcome:
    """Starts the workers, and holds every conversation undisturbed first, then often and disturbed."""
    network = Network(made, lanes=LANES_PER_WORKER)
    try:
        await network.link_routers()
        for worker in [await network.start_worker() for _ in range(NUM_WORKERS)]:
            await network.joined(worker)
        return await _run(made, network, plan, snapshots, disk, redis_disk, progress)
    finally:
        await network.close()


async def _run(
    made: Runtime,
    network: Network,
    plan: Plan,
    snapshots: Path,
    disk: FaultyDisk,
    redis_disk: RedisDisk | None,
    progress: Progress,
) -> Outcome:
    draw = random.Random(plan.seed)
    scripts = [Script.of(plan.seed + number) for number in range(_NUM_SCRIPTS)]
    async with kakeya.AsyncClient(network.target) as client:
        expected = await _undisturbed(client, scripts, progress)
    faults = Faults(made, network, disk, redis_disk, draw, ROUTER_FLAGS, with_redis=plan.with_redis)
    outcome = Outcome(faults=faults.counts)
    async with asyncio.TaskGroup() as group:
        causing = group.create_task(_cause(faults, plan.num_faults, draw, progress))
        numbers = itertools.count()
        for _ in range(_NUM_AT_ONCE):
            group.create_task(_converse(network.target, scripts, expected, numbers, plan, causing, faults, outcome))
    if faults.may_have_lost(-math.inf):
        await asyncio.to_thread(expire_all, made.redis.url)
    outcome.leaks = await _leaks(made, snapshots)
    return outcome


async def _undisturbed(client: kakeya.AsyncClient, scripts: list[Script], progress: Progress) -> list[Heard]:
    progress("undisturbed conversations", 0, len(scripts))
    return list(await asyncio.gather(*(hold(client, script, _undisturbed_fork) for script in scripts)))


async def _undisturbed_fork(_fork: kakeya.AsyncSession) -> None:
    """Nothing happens to it."""


async def _cause(faults: Faults, num_faults: int, draw: random.Random, progress: Progress) -> None:
    for number in range(num_faults):
        await asyncio.sleep(draw.uniform(*_BETWEEN_SECONDS))
        progress(await faults.cause(), number + 1, num_faults)


async def _converse(
    target: str,
    scripts: list[Script],
    expected: list[Heard],
    numbers: Iterator[int],
    plan: Plan,
    causing: "asyncio.Task[None]",
    faults: Faults,
    outcome: Outcome,
) -> None:
    """One session after the other, as long as there are faults to come and sessions wanted."""
    async with kakeya.AsyncClient(target, max_attempts=12) as client:
        while outcome.num_sessions < plan.num_sessions or not causing.done():
            number = next(numbers)
            which, began = number % len(scripts), time.monotonic()
            outcome.num_sessions += 1
            try:
                heard = await hold(client, scripts[which], faults.on_fork)
            except kakeya.KakeyaError as error:
                is_of_loss = faults.may_have_lost(began) and isinstance(error, _OF_A_LOSS)
                is_excused = is_of_loss or (faults.redis_is_to_blame and not isinstance(error, kakeya.Internal))
                seen = outcome.excused if is_excused else outcome.errors
                seen.append(f"session {number}: {type(error).__name__}: {error}")
                await asyncio.sleep(0.2)
            else:
                if difference := _difference(heard, expected[which]):
                    outcome.differing.append(f"session {number} (script {which}): {difference}")


def _difference(heard: Heard, expected: Heard) -> str:
    """In words; empty: there is none."""
    for turn, (one, other) in enumerate(zip(heard.answers, expected.answers, strict=True)):
        if one.token_ids != other.token_ids:
            pairs = zip(one.token_ids, other.token_ids, strict=False)
            num_equal = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            return (
                f"turn {turn} differs from token {num_equal} on ({len(one.token_ids)}, expected {len(other.token_ids)})"
            )
        if len(one.details) != len(other.details):
            return f"turn {turn} has {len(one.details)} details, expected {len(other.details)}"
        for number, (detail, expected_detail) in enumerate(zip(one.details, other.details, strict=True)):
            # That of a token which was on its way when something broke is nowhere.
            if detail.logprob is not None and detail != expected_detail:
                return (
                    f"turn {turn} differs in what token {number} was chosen from: {detail}, expected {expected_detail}"
                )
    if heard.history_length != expected.history_length:
        return f"the history has {heard.history_length} tokens, expected {expected.history_length}"
    return ""


async def _leaks(made: Runtime, snapshots: Path) -> list[str]:
    """What is left once everything has had time to settle."""
    (pool,) = {worker.pool for worker in made.list_workers()}
    found: list[str] = []
    for _ in range(round(_SETTLE_SECONDS)):
        files = await asyncio.to_thread(lambda: [str(path) for path in snapshots.rglob("*") if "-" in path.stem])
        found = await asyncio.to_thread(leftovers, made, Pool(pool))
        found += [f"a snapshot file is left: {Path(name).name}" for name in files if not name.endswith("store-id")]
        if not found:
            break
        await asyncio.sleep(1.0)
    return found
