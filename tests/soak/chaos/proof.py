"""Many sessions at once, and faults in the middle of them."""

import asyncio
import json
import math
import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import kakeya
from kakeya_shared.settings.service import setting
from kakeya_worker.conformance.tools.tokenizer_files import write_tokenizer
from tests.integration.processes import runtime
from tests.layers import save_more_layers
from tests.random_checkpoint import save_random_checkpoint
from tests.redis_groups import sentinel_group
from tests.redis_server import RedisServer
from tests.soak.chaos.conversation import where
from tests.soak.chaos.conversations import Conversations
from tests.soak.chaos.faults import Faults, Ground
from tests.soak.chaos.faulty_disk import FaultyDisk
from tests.soak.chaos.network import Network
from tests.soak.chaos.redis_faults import expire_all, redis_disk
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report
from tests.soak.run import Run

_NUM_ROUTERS, _NUM_WORKERS, _LANES_PER_WORKER = 2, 3, 36
# With one worker lost, each of the others has lanes for most of them, and for forks beside their sources.
_NUM_AT_ONCE = 24
_NUM_SCRIPTS = 24
_NUM_LAYERS = 12  # of the model, which says what its draft model of four says: drafts pay, and most are right
_SPECULATIONS = ("ngram", "draft-model")
_BETWEEN_SECONDS = (0.2, 1.5)
_SETTLE_SECONDS = 30.0
_MAX_LOG_LINES = 20

# How a client is told that Redis has lost what its session was: it is gone, shorter than was acknowledged, or LOST.
_OF_A_LOSS = (
    *(kakeya.SessionNotFound, kakeya.SessionClosed, kakeya.HistoryLengthMismatch),
    *(kakeya.WorkerLost, kakeya.OperationStopped, kakeya.BoundaryNotReachable),
)
_ROUTER_FLAGS = (
    *("--heartbeat-interval-seconds=0.3", "--worker-lease-seconds=2.5", "--operation-lease-seconds=1.5"),
    *("--reap-interval-seconds=0.2", "--recovery-seconds=0.2"),
)


class Chaos(SeededProof):
    """Sessions on a runtime of real processes that are killed, stopped and ended at random, held against undisturbed
    ones. Exits with 1 when a session's tokens differ, a client saw an error while Redis was well, or an INTERNAL one at
    any time, or anything was left at the end. Runs of one seed cause the same faults in the same order, at times that
    differ. Half of the conversations take each turn in one call. Of either kind half are drafted for by `ngram`, half
    by a smaller model; the undisturbed ones take several calls and draft none.
    """

    SEED: ClassVar = "CHAOS_SEED"
    model_config = SeededProof.named("chaos")

    faults: int = setting(200, "how many", unit="faults", reason="each kind of them several times", ge=0)
    sessions: int = setting(500, "at least so many", unit="sessions", reason="some two or three for a fault", ge=0)
    redis: bool = setting(True, "whether Redis has faults, too", reason="it is what all state is in")
    sentinel: bool = setting(
        False,
        "whether Redis is a primary and a replica behind Sentinel, and half of the faults kill the primary",
        reason="one Redis has more faults",
    )
    redis_replicas: int = setting(
        1,
        "with --sentinel: how many have to have what is acknowledged; 0: none, so that a failover may lose some of it",
        unit="replicas",
        reason="nothing is lost",
        ge=0,
        le=1,
    )

    def prove(self, directory: Path, progress: Progress) -> Report:
        """Workers and routers behind links, whose snapshots go to a disk that is full or slow at times."""
        draft_model, snapshots = save_random_checkpoint(directory / "small"), directory / "snapshots"
        write_tokenizer(draft_model)
        model = save_more_layers(draft_model, directory / "random", _NUM_LAYERS)
        disk = FaultyDisk(snapshots, directory)
        environment = disk.environment | {
            "KAKEYA_WORKER_DRAFT_MODEL": str(draft_model),
            "KAKEYA_WORKER_SNAPSHOTS": str(snapshots),
            "KAKEYA_WORKER_SHUTDOWN_GRACE_SECONDS": "1",
            "KAKEYA_WORKER_SNAPSHOT_SWEEP_SECONDS": "5",
            "KAKEYA_ROUTER_SHUTDOWN_GRACE_SECONDS": "1",
        }
        flags: tuple[str, ...] = _ROUTER_FLAGS
        with ExitStack() as stack:
            own = None if self.sentinel else stack.enter_context(redis_disk(directory))
            redis: RedisServer | None = own.redis if own is not None else None
            group = None
            if self.sentinel:
                # A primary that is cut off takes no writes for longer than a second.
                careful = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1") if self.redis_replicas else ()
                redis = group = stack.enter_context(sentinel_group(1, "--appendfsync", "always", *careful))
                flags = (*flags, "--redis", group.sentinel_url, f"--redis-replicas={self.redis_replicas}")
            with runtime(
                model, directory, num_workers=0, router_flags=flags, environment=environment, redis=redis
            ) as made:
                for _ in range(_NUM_ROUTERS - 1):
                    made.start_router(*flags)
                ground = Ground(
                    *(made, flags, snapshots, disk, own),
                    has_redis_faults=self.redis,
                    group=group,
                    is_replicated=bool(self.redis_replicas),
                )
                return asyncio.run(ChaosRun(self, ground, progress).run())


class ChaosRun(Run):
    def __init__(self, asked: Chaos, ground: Ground, progress: Progress) -> None:
        super().__init__(ground.made, progress)
        self._asked, self._ground = asked, ground
        self._network = Network(ground.made, lanes=_LANES_PER_WORKER)
        self._draw = random.Random(asked.seed)
        self._faults, self._num_caused = Faults(ground, self._network, self._draw), 0
        self._conversations = Conversations(self.tally, asked.seed, _NUM_SCRIPTS, self._see, _SPECULATIONS)
        self._errors: list[str] = []  # that clients saw while Redis was well
        self._excused: list[str] = []  # what they saw when it was not
        self._logs: list[str] = []  # that name sessions which ended in an error

    async def run(self) -> Report:
        """Starts the workers, and holds every conversation undisturbed first, then often and disturbed."""
        try:
            await self._network.link_routers()
            for worker in [await self._network.start_worker() for _ in range(_NUM_WORKERS)]:
                await self._network.joined(worker)
            self.begin(_NUM_SCRIPTS, "undisturbed conversations", lambda: self._conversations.num_heard)
            async with kakeya.AsyncClient(self._network.target) as client:
                await self._conversations.hear(client)
            self.begin(self._asked.faults, "faults", lambda: self._num_caused)
            async with asyncio.TaskGroup() as group:
                causing = group.create_task(self._cause())
                for _ in range(_NUM_AT_ONCE):
                    group.create_task(self._converse(causing))
            if self._faults.may_have_lost(-math.inf):
                await asyncio.to_thread(expire_all, self.made.redis.url, self._faults.losses.evicted)
            leaks, _ = await asyncio.to_thread(self.leave_nothing, _SETTLE_SECONDS, self._snapshots)
        finally:
            await self._network.close()
        return self.report(
            {
                "num_sessions": self._conversations.num_sessions,
                "num_accepted_drafts": dict(self._conversations.accepted),
                "faults": self._faults.counts,
                "differing": self._conversations.differing,
                "errors": self._errors,
                "excused": self._excused,
                "excused_kinds": dict(Counter(line.split(": ")[1] for line in self._excused).most_common()),
                "leaks": leaks,
                "logs_of_errors": self._logs,
                "seed": self._asked.seed,
            }
        )

    async def _cause(self) -> None:
        for _ in range(self._asked.faults):
            await asyncio.sleep(self._draw.uniform(*_BETWEEN_SECONDS))
            name = await self._faults.cause()
            self._num_caused += 1
            self.progress.what = f"{self._conversations.num_sessions} sessions; last: {name}"

    async def _converse(self, causing: "asyncio.Task[None]") -> None:
        """One session after the other, as long as there are faults to come and sessions wanted."""
        async with kakeya.AsyncClient(self._network.target, max_attempts=12) as client:
            await self._conversations.hold(client, lambda: self._goes_on(causing), self._faults.on_fork)

    def _goes_on(self, causing: "asyncio.Task[None]") -> bool:
        return self._conversations.num_sessions < self._asked.sessions or not causing.done()

    def _see(self, who: str, error: kakeya.KakeyaError, began: float) -> None:
        """An error of a session that began then."""
        what = f"{who}: {type(error).__name__}: {error}"
        self._faults.look_for_failovers()
        is_of_loss = isinstance(error, _OF_A_LOSS)
        keeps_all = self._asked.sentinel and self._asked.redis_replicas
        unexcused = (kakeya.Internal, kakeya.InvariantViolated, *(_OF_A_LOSS if keeps_all else ()))
        if (is_of_loss and self._faults.may_have_lost(began)) or (
            self._faults.redis_is_to_blame and not isinstance(error, unexcused)
        ):
            self._excused.append(what)
        else:
            session_id, call = where(error)
            now, (fault, at) = time.monotonic(), self._faults.latest or ("none", began)
            what += f" ({now - began:.0f} s after its begin, {now - at:.0f} s after the latest fault, {fault}: {call})"
            self._errors.append(what)
            self.tally.violate(what)
            self._logs += self._lines(session_id)

    def _lines(self, session_id: str) -> list[str]:
        """The last ones of all logs that name a session."""
        if not session_id:
            return []
        logs = ((log.stem, line) for log in self.made.directory.glob("*.log") for line in log.read_text().splitlines())
        told = [
            (who, line) for who, line in logs if session_id in line and line[:1] + line[-1:] == "{}"
        ]  # one may be half written
        told.sort(key=lambda each: json.loads(each[1])["timestamp"])
        return [f"{who}: {line}" for who, line in told[-_MAX_LOG_LINES:]]

    def _snapshots(self) -> list[str]:
        """That are left."""
        names = [path.name for path in self._ground.snapshots.rglob("*") if "-" in path.stem]
        return [f"the snapshot file {name}" for name in names if not name.endswith("store-id")]
