"""Nodes that die, come back and change, while sessions run on them."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import redis.asyncio

import kakeya
from kakeya_shared.settings.service import setting
from tests.integration.processes import Runtime, runtime
from tests.ports import free_port
from tests.random_checkpoint import save_random_checkpoint
from tests.soak.chaos.conversations import Conversations
from tests.soak.nodes.membership import Membership
from tests.soak.nodes.steps import LEASE_SECONDS, TUNNELS_A_WORKER, Steps
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report
from tests.soak.run import Run

_NUM_DIALLED, _NUM_REVERSE, _LANES = 2, 2, 16
# With one worker lost, the others have lanes for all of them, and for forks beside their sources.
_NUM_AT_ONCE, _NUM_SCRIPTS = 6, 12
_STEPS_A_SEQUENCE = (1, 3)
_BETWEEN_SECONDS = (0.2, 1.5)
_PROBE_SECONDS = 0.3
_SETTLE_SECONDS = 40.0
_ROUTER_FLAGS = (
    *(f"--worker-lease-seconds={LEASE_SECONDS:g}", "--heartbeat-interval-seconds=0.3", "--operation-lease-seconds=1.5"),
    *("--reap-interval-seconds=0.2", "--shutdown-grace-seconds=1"),
)


class Nodes(SeededProof):
    """Workers that are dialled and others behind tunnels, all asked through a router that has no tunnel. They die and
    return under the same and another id, or at another address, or are stopped while another process takes their id;
    and the routers that end the tunnels die in turn. Exits with 1 when a session's tokens differ from those of an
    undisturbed one, a client saw an error, the list of workers was not true within two leases of a change, a worker
    that was given up answered a call or was given a session, or anything was left.
    """

    SEED: ClassVar = "NODES_SEED"
    model_config = SeededProof.named("nodes")

    sequences: int = setting(50, "of one to three changes each", unit="sequences", reason="20 minutes", ge=1)

    def prove(self, directory: Path, progress: Progress) -> Report:
        model = save_random_checkpoint(directory / "random")
        environment = {"KAKEYA_WORKER_SHUTDOWN_GRACE_SECONDS": "1"}
        # A start from nothing takes seconds of a processor, which are no part of what is measured.
        with (
            patch.object(Runtime, "forks", True),
            runtime(
                model,
                directory,
                num_workers=0,
                router_flags=(*_ROUTER_FLAGS, "--tunnel-bind=none"),
                environment=environment,
            ) as made,
        ):
            flags: dict[str, tuple[str, ...]] = {}
            for _ in range(TUNNELS_A_WORKER):
                own = (*_ROUTER_FLAGS, f"--tunnel-bind=127.0.0.1:{free_port()}")
                flags[made.start_router(*own).address] = own
            return asyncio.run(NodesRun(self, made, flags, progress).run())


class NodesRun(Run):
    def __init__(
        self, asked: Nodes, made: Runtime, router_flags: dict[str, tuple[str, ...]], progress: Progress
    ) -> None:
        super().__init__(made, progress)
        self._asked, self._draw = asked, random.Random(asked.seed)
        self._membership = Membership(made)
        self._steps = Steps(made, self._membership, self._draw, _LANES, router_flags)
        self._conversations = Conversations(self.tally, asked.seed, _NUM_SCRIPTS)
        self._num_probes = self._num_done = 0

    async def run(self) -> Report:
        watching = asyncio.create_task(self._membership.run())
        try:
            await self._run_sequences()
        finally:
            watching.cancel()
        leaks, _ = await asyncio.to_thread(self.leave_nothing, _SETTLE_SECONDS)
        for what in (*self._steps.stale.answers, *self._steps.placed):
            self.tally.violate(what, kind=what.partition(", ")[2][:40])
        self.tally.violate(*(f"the incarnation {each} is listed again" for each in self._membership.back))
        return self._report(leaks)

    async def _run_sequences(self) -> None:
        for number in range(_NUM_DIALLED + _NUM_REVERSE):
            self._steps.start(is_reverse=number >= _NUM_DIALLED)
        await asyncio.to_thread(self.made.wait_for_workers, _NUM_DIALLED + _NUM_REVERSE)
        self.begin(_NUM_SCRIPTS, "undisturbed conversations", lambda: self._conversations.num_heard)
        self._steps.pool = self.pool.name
        await self._membership.know()
        async with self._client() as client:
            await self._conversations.hear(client)
        self.begin(self._asked.sequences, "sequences", lambda: self._num_done)
        async with asyncio.TaskGroup() as group:
            changing = group.create_task(self._change())
            group.create_task(self._probe(changing))
            for _ in range(_NUM_AT_ONCE):
                group.create_task(self._converse(changing))

    def _report(self, leaks: Sequence[str]) -> Report:
        heals, refused = self._membership.seconds, self._steps.stale.refused
        longest, most = max(heals, default=0.0), 2 * LEASE_SECONDS
        late = [f"the list of workers was not true for {longest:.2f} s, at most {most:g}"] * (longest > most)
        percentiles = np.percentile(heals or [0.0], (50, 95, 100)).round(3).tolist()
        return self.report(
            {
                "num_sessions": self._conversations.num_sessions,
                "sequences": self._num_done,
                "steps": dict(self._steps.counts),
                "heal_seconds": dict(zip(("p50", "p95", "max"), percentiles, strict=True)),
                "two_leases_seconds": most,
                "refused_by_stale_workers": dict(refused),
                "num_probes": self._num_probes,
                "differing": self._conversations.differing,
                "errors": self._conversations.errors,
                "leaks": leaks,
                "seed": self._asked.seed,
            },
            late,
        )

    def _client(self) -> kakeya.AsyncClient:
        """Of the router that has no tunnel."""
        return kakeya.AsyncClient(self.made.address, max_attempts=12)

    async def _change(self) -> None:
        try:
            await self._take_all()
        except* AssertionError as broken:  # what came after it would say nothing
            self.tally.violate(*_told(broken))

    async def _take_all(self) -> None:
        for _ in range(self._asked.sequences):
            for _ in range(self._draw.randint(*_STEPS_A_SEQUENCE)):
                await asyncio.sleep(self._draw.uniform(*_BETWEEN_SECONDS))
                name = await self._steps.take()
                self.progress.what = f"{self._conversations.num_sessions} sessions; last: {name}"
            self._num_done += 1

    async def _probe(self, changing: "asyncio.Task[None]") -> None:
        """Opens sessions and looks where they are: not where somebody was given up before."""
        store: Any = redis.asyncio.Redis.from_url(self.made.redis.url, decode_responses=True, protocol=2)
        async with store, self._client() as client:
            while not changing.done():
                gone = set(self._membership.gone)
                try:
                    async with await client.create_session() as session:
                        key = f"kakeya:{{{self.pool.name}}}:session:{session.id}"
                        incarnation = await store.hget(key, "incarnation")
                        worker_id = (await session.info()).worker
                except kakeya.KakeyaError as error:
                    self._conversations.see(f"probe {self._num_probes}", error)
                else:
                    if incarnation in gone:
                        self.tally.violate(f"a session is on {worker_id}, incarnation {incarnation}, which was gone")
                self._num_probes += 1
                await asyncio.sleep(_PROBE_SECONDS)

    async def _converse(self, changing: "asyncio.Task[None]") -> None:
        """One session after the other, as long as there are changes to come."""
        async with self._client() as client:
            await self._conversations.hold(client, lambda: not changing.done())


def _told(broken: BaseExceptionGroup[AssertionError]) -> list[str]:
    """What each of them says."""
    return [
        what
        for each in broken.exceptions
        for what in (_told(each) if isinstance(each, BaseExceptionGroup) else [str(each)])
    ]
