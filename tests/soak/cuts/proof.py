"""Workers that nobody can dial, whose links are cut again and again while sessions run on them."""

import asyncio
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import psutil

import kakeya
from kakeya_shared.settings.service import setting
from tests.certificates import Authority
from tests.integration.processes import ADMIN_KEY_VARIABLE, JOIN_TOKEN_VARIABLE, Runtime, asking_for_keys, runtime
from tests.ports import free_port
from tests.random_checkpoint import save_random_checkpoint
from tests.soak.chaos.conversations import Conversations
from tests.soak.cuts import tunnels
from tests.soak.cuts.links import HOST, Kind, Link, links
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report
from tests.soak.run import Run

_NUM_LINKS, _LANES = 4, 24
_NUM_AT_ONCE, _NUM_SCRIPTS = 12, 12
_CUT_SECONDS = (0.1, 20.0)  # shorter and longer than the worker's lease, and than the silence that ends a tunnel
_BETWEEN_SECONDS = (0.5, 4.0)
_SETTLE_SECONDS = 40.0
_BACK_SECONDS = 2.0
_MOST_FDS = 24  # of connections that come and go
_KINDS: tuple[Kind, ...] = ("down", "blackhole")
_ROUTER_FLAGS = (
    *("--worker-lease-seconds=5", "--heartbeat-interval-seconds=1", "--shutdown-grace-seconds=1"),
    # Connections of which a cut has taken the other end go within seconds, not minutes.
    *("--keepalive-seconds=10", "--keepalive-timeout-seconds=5"),
)


class Cuts(SeededProof):
    """Four workers behind links, which keep tunnels to two routers, and one that is dialled. Conversations go on while
    the links are cut at random, several at once, half of them so that packets vanish. Exits with 1 when a session's
    tokens differ from those of an undisturbed one, a client saw an error, a worker was away for more than 2 s after its
    link's return (95th percentile), or anything was left. Takes root, for network namespaces.
    """

    SEED: ClassVar = "CUTS_SEED"
    model_config = SeededProof.named("cuts")

    cuts: int = setting(1000, "how many", unit="cuts", reason="half an hour", ge=1)

    def prove(self, directory: Path, progress: Progress) -> Report:
        """With TLS and tokens, as beyond loopback."""
        authority = Authority(directory)
        pair = authority.pair("router", addresses=("127.0.0.1", HOST))
        keys = asking_for_keys()
        environment = keys | {
            "KAKEYA_ROUTER_TLS_CERT": str(pair.cert),
            "KAKEYA_ROUTER_TLS_KEY": str(pair.key),
            "KAKEYA_ROUTER_TUNNEL_CA": str(authority.path),
            "KAKEYA_WORKER_ROUTER_CA": str(authority.path),
            "KAKEYA_WORKER_TOKEN": keys[JOIN_TOKEN_VARIABLE],
            "KAKEYA_WORKER_METRICS_BIND": "none",
        }
        credentials = kakeya.tls_credentials(ca=authority.path)
        model = save_random_checkpoint(directory / "random")
        with (
            links(_NUM_LINKS, directory) as made_links,
            runtime(
                model,
                directory,
                num_workers=0,
                router_flags=_ROUTER_FLAGS,
                environment=environment,
                credentials=credentials,
            ) as made,
        ):
            made.routers.pop().terminate()
            for _ in range(2):
                address = f"{HOST}:{free_port()}"
                made.start_router(*_ROUTER_FLAGS, f"--tunnel-bind={HOST}:0", address=address)
            return asyncio.run(CutsRun(self, made, made_links, progress).run())


class CutsRun(Run):
    def __init__(self, asked: Cuts, made: Runtime, made_links: Sequence[Link], progress: Progress) -> None:
        super().__init__(made, progress)
        self._asked, self._links = asked, made_links
        self._draw = random.Random(asked.seed)
        self._conversations = Conversations(self.tally, asked.seed, _NUM_SCRIPTS)
        self._num_cut = 0
        self._counts = Counter[str]()
        self._cuts: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)  # from when to when

    async def run(self) -> Report:
        await asyncio.to_thread(self._start_workers)
        self.begin(_NUM_SCRIPTS, "undisturbed conversations", lambda: self._conversations.num_heard)
        async with self._client(0) as client:
            await self._conversations.hear(client)
        fds = self._num_fds()
        self.begin(self._asked.cuts, "cuts", lambda: self._num_cut)
        async with asyncio.TaskGroup() as group:
            cutting = [group.create_task(self._cut(link)) for link in self._links]
            for number in range(_NUM_AT_ONCE):
                group.create_task(self._converse(number, cutting))
        leaks, _ = await asyncio.to_thread(self.leave_nothing, _SETTLE_SECONDS, lambda: self._more_fds(fds))
        back = self._seconds_until_back()
        percentile = float(np.percentile(back, 95)) if back else 0.0
        late = [f"p95 of being back is {percentile:.2f} s, at most {_BACK_SECONDS:g}"] * (percentile > _BACK_SECONDS)
        return self.report(
            {
                "num_sessions": self._conversations.num_sessions,
                "cuts": dict(self._counts),
                "back_seconds": {
                    "p50": round(float(np.median(back)), 3) if back else 0.0,
                    "p95": round(percentile, 3),
                    "max": round(max(back, default=0.0), 3),
                },
                "ended_tunnels": sum(
                    not change.stands for each in self._links for change in tunnels.changes(self._logs, each.name)
                ),
                "differing": self._conversations.differing,
                "errors": self._conversations.errors,
                "leaks": leaks,
                "seed": self._asked.seed,
            },
            late,
        )

    @property
    def _logs(self) -> list[Path]:
        return [router.log for router in self.made.routers]

    def _client(self, number: int) -> kakeya.AsyncClient:
        """Of the one router, or of the other."""
        router = self.made.routers[number % len(self.made.routers)]
        key = self.made.environment[ADMIN_KEY_VARIABLE]
        return kakeya.AsyncClient(router.address, credentials=self.made.credentials, api_key=key, max_attempts=12)

    def _start_workers(self) -> None:
        own = self.made.python
        for link in self._links:
            self.made.python = str(link.python)
            self.made.start_worker("--reverse", "--worker-id", link.name, lanes=_LANES)
        self.made.python = own
        self.made.start_worker(lanes=_LANES)
        self.made.wait_for_workers(_NUM_LINKS + 1)

    async def _cut(self, link: Link) -> None:
        """Again and again, for a time whose logarithm is drawn evenly."""
        while self._num_cut < self._asked.cuts:
            self._num_cut += 1
            await asyncio.sleep(self._draw.uniform(*_BETWEEN_SECONDS))
            kind = self._draw.choice(_KINDS)
            seconds = math.exp(self._draw.uniform(*map(math.log, _CUT_SECONDS)))
            self._counts[kind] += 1
            began = time.time()
            await asyncio.to_thread(link.cut, kind)
            try:
                await asyncio.sleep(seconds)
            finally:
                await asyncio.to_thread(link.mend, kind)
            self._cuts[link.name].append((began, time.time()))
            self.progress.what = f"{self._conversations.num_sessions} sessions"
        await asyncio.sleep(2 * _BACK_SECONDS)

    async def _converse(self, client_number: int, cutting: Sequence["asyncio.Task[None]"]) -> None:
        """One session after the other, as long as there are cuts to come."""
        async with self._client(client_number) as client:
            await self._conversations.hold(client, lambda: not all(task.done() for task in cutting))

    def _seconds_until_back(self) -> list[float]:
        """Of each cut whose link stayed whole for long enough afterwards."""
        found = []
        for link in self._links:
            changes = tunnels.changes(self._logs, link.name)
            cuts = self._cuts[link.name]
            ends = [*(began for began, _ in cuts[1:]), math.inf]
            for (_, mended_at), until in zip(cuts, ends, strict=True):
                back = tunnels.seconds_until_back([each for each in changes if each.at < until], mended_at)
                if back is not None or until - mended_at > 2 * _BACK_SECONDS:
                    found.append(math.inf if back is None else back)
        return found

    def _num_fds(self) -> dict[str, int]:
        """Of each process, without connections to Redis, of which a router keeps as many as it ever needed at once."""
        redis = int(self.made.redis.url.rpartition(":")[2].partition("/")[0])
        found = {}
        for each in (*self.made.routers, *self.made.workers):
            process = psutil.Process(each.process.pid)
            remote = [connection.raddr for connection in process.net_connections("tcp") if connection.raddr]
            found[each.log.stem] = process.num_fds() - sum(address.port == redis for address in remote)
        return found

    def _more_fds(self, before: dict[str, int]) -> list[str]:
        now = self._num_fds()
        pids = {each.log.stem: each.process.pid for each in (*self.made.routers, *self.made.workers)}
        return [
            f"{name} has {now[name]} open files, {number} before: {_connections(pids[name])}"
            for name, number in before.items()
            if now[name] > number + _MOST_FDS
        ]


def _connections(pid: int) -> str:
    """How many a process has of each kind, without the ports that were chosen for them."""
    found = Counter[str]()
    for each in psutil.Process(pid).net_connections("all"):
        ends = [end if isinstance(end, str) else f"{end.ip}:{end.port}" for end in (each.laddr, each.raddr) if end]
        found[" ".join([each.status, *ends])] += 1
    return ", ".join(f"{count} x {what}" for what, count in found.most_common())
