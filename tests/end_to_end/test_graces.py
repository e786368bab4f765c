"""With the chart's graces pods are replaced under load, as Kubernetes replaces them: no client sees an error."""

import asyncio
import itertools
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from openai import AsyncOpenAI

import kakeya
from kakeya_shared.health_command import check
from tests.end_to_end.load import NUM_GENERATED, ChatTalk, Load, SessionTalk, held_against, nothing_is_lost
from tests.freezable_link import Link
from tests.integration.processes import Process, Runtime, runtime, wait_until
from tests.redis_server import redis_server

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "ops" / "helm" / "kakeya" / "values.yaml").read_text())
PARTS = ("router", "worker", "http")
# What the chart's terminationGracePeriodSeconds has beyond sleep and grace (tests/unit/ops/helm holds it to that).
SPARE_SECONDS = 10.0
# Seconds long: stops meet these streams.
LONG_STREAM, LONG_ANSWER = 1_500, 400


def variables() -> dict[str, str]:
    """What the chart tells the three services of their ends, and all else that it sets by default."""
    graces = {f"KAKEYA_{part.upper()}_SHUTDOWN_GRACE_SECONDS": VALUES[part]["shutdownGraceSeconds"] for part in PARTS}
    given = {name: value for part in PARTS for name, value in VALUES[part]["variables"].items()}
    return {name: str(value) for name, value in (graces | given).items()}


def serves(address: str) -> bool:
    return check(address) == "SERVING"


class Service(Link):
    """Of Kubernetes: one address of pods. A connection that there is stays with its pod, whatever becomes of that."""

    def __init__(self) -> None:
        super().__init__("")
        self.pods: list[Process] = []
        self._turn = itertools.count()

    def target(self) -> str:
        if not self.pods:
            raise ConnectionRefusedError
        return self.pods[next(self._turn) % len(self.pods)].address


@dataclass
class Cluster:
    """Attributes:
    seconds: that each pod took to end from SIGTERM on, by part.
    """

    made: Runtime
    routers: Service
    shims: Service
    seconds: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def start_router(self) -> Process:
        return self.made.start_router()

    def start_shim(self) -> Process:
        return self.made.start_http("--router", self.routers.address, "--tokenizer", "kakeya-nano=kakeya-nano")

    def start_worker(self, address: str = "") -> Process:
        return self.made.start_worker("--weights=int8", joins=self.routers.address, address=address)

    async def replace(self, service: Service, start: Callable[[], Process], part: str) -> None:
        """All pods of a Deployment, each once a new one is ready."""
        for old in list(service.pods):
            service.pods.append(await asyncio.to_thread(start))
            service.pods.remove(old)
            await asyncio.sleep(VALUES[part]["preStopSeconds"])
            await self.end(old, part)

    async def replace_workers(self) -> None:
        """All pods of a StatefulSet, each by another one of its name, which is ready before the next one goes."""
        for old in list(self.made.workers):
            await self.end(old, "worker")
            self.start_worker(old.address)
            await asyncio.to_thread(wait_until, partial(serves, old.address), "the worker serves")

    async def end(self, pod: Process, part: str) -> None:
        """By SIGTERM, within what its pod is given."""
        began = time.monotonic()
        pod.process.send_signal(signal.SIGTERM)
        grace = VALUES[part]["shutdownGraceSeconds"] + SPARE_SECONDS
        assert await asyncio.to_thread(pod.process.wait, grace) == 0, pod.log.read_text()[-2000:]
        self.seconds[part].append(time.monotonic() - began)


@pytest.fixture(params=[False, True], ids=["sessions_move", "sessions_are_parked"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Two of each, without the store of snapshots that the chart's user may name, and with it."""
    store = {"KAKEYA_WORKER_SNAPSHOTS": str(tmp_path / "snapshots")} if request.param else {}
    with (
        redis_server() as redis,
        runtime(Path("kakeya-nano"), tmp_path, num_workers=0, environment=variables() | store, redis=redis) as made,
    ):
        async with Service() as routers, Service() as shims:
            cluster = Cluster(made, routers, shims)
            routers.pods = [made.routers[0], await asyncio.to_thread(cluster.start_router)]
            for _ in range(2):
                cluster.start_worker()
            await asyncio.to_thread(made.wait_for_workers, 2)
            shims.pods = [await asyncio.to_thread(cluster.start_shim) for _ in range(2)]
            yield cluster


@asynccontextmanager
async def under_load(cluster: Cluster) -> AsyncIterator[Load]:
    """Streams over gRPC, short and long, and whole answers over HTTP, by clients as they come."""
    async with (
        kakeya.AsyncClient(cluster.routers.address) as client,
        AsyncOpenAI(base_url=f"http://{cluster.shims.address}/v1", api_key="none") as chats,
    ):
        short = SessionTalk(await client.create_session(), NUM_GENERATED)
        long = SessionTalk(await client.create_session(), LONG_STREAM)
        spoken, lengthy = ChatTalk(chats), ChatTalk(chats, LONG_ANSWER)
        async with Load([short, long, spoken, lengthy]) as load:
            await load.advance()
            yield load
            await load.advance()
            await load.end()
        print(f"longest pause of a stream: {max(short.longest_pause, long.longest_pause):.1f} s")
        await nothing_is_lost([short, long])
        for each in (short, long):
            await held_against(SessionTalk(await client.create_session(), each.num_generated), [each])
        for talk in (spoken, lengthy):
            await held_against(ChatTalk(chats, talk.num_generated), [talk])


async def test_pods_are_replaced_and_no_client_notices(cluster: Cluster) -> None:
    async with under_load(cluster) as load:
        await asyncio.gather(
            cluster.replace(cluster.routers, cluster.start_router, "router"),
            cluster.replace(cluster.shims, cluster.start_shim, "http"),
            cluster.replace_workers(),
        )
        await load.advance()
    for part, seconds in cluster.seconds.items():
        print(f"{part}: ended {', '.join(f'{each:.1f}' for each in seconds)} s after SIGTERM")
        assert len(seconds) == 2
