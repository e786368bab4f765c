"""What a session costs Redis and the snapshot store: bytes of each, of sessions that have had a turn and are idle.

With a snapshot store Redis forgets the tokens that two snapshots cover. Without one it has a session's whole history.
The model is kakeya-nano; what Redis has does not depend on the model. Sizes of files are those of kakeya-nano's lanes.
Nothing is judged.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

import kakeya
from kakeya_bench.report.quantities import Bytes
from kakeya_shared import installed_models
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Numbers, Stage
from tests.integration.processes import START_SECONDS, Runtime, runtime, wait_until

_NUM_GENERATED = 20
_SETTLE_SECONDS = 3.0  # for snapshots that are written behind the answer, and journals that are trimmed then


class StateSettings(BenchSettings):
    sessions: int = setting(200, "sessions", reason="a server's own memory shows beside fewer", metavar="N", ge=2)
    tokens: Numbers = setting(
        (100, 400, 1600), "lengths of a history", reason="short of a window to several", metavar="N,..."
    )


async def used_bytes(redis: Redis) -> int:
    facts = await redis.info("memory")
    return int(facts["used_memory"])


def file_bytes(store: Path | None) -> int:
    return sum(file.stat().st_size for file in store.rglob("*.safetensors")) if store else 0


async def grown(
    made: Runtime, num_sessions: int, histories: Sequence[int], store: Path | None
) -> list[tuple[float, float]]:
    """Bytes of Redis and of files a session at each length of its history, which grows by a turn to the next one."""
    redis: Redis = Redis.from_url(made.redis.url)
    async with kakeya.AsyncClient(made.address) as client:
        async with await client.create_session() as session:  # what the first one makes is there for all
            await session.turn([1, 2, 3], max_tokens=2, ignore_eos=True).all()
        before = await used_bytes(redis)
        sessions = [await client.create_session() for _ in range(num_sessions)]
        found, length = [], 0
        for history in histories:
            new = [number % 1000 for number in range(history - length - _NUM_GENERATED)]
            for session in sessions:
                await session.turn(new, max_tokens=_NUM_GENERATED, ignore_eos=True).all()
            length = history
            await asyncio.sleep(_SETTLE_SECONDS)
            of_files = await asyncio.to_thread(file_bytes, store)
            found.append(((await used_bytes(redis) - before) / num_sessions, of_files / num_sessions))
        for session in sessions:
            await session.close()
    await redis.aclose()
    return found


@bench.command(StateSettings)
def measure(settings: StateSettings, stage: Stage) -> Found:
    step, found = stage.steps(2), dict[str, Any]()
    model = installed_models.directory("kakeya-nano")
    for name, store in (("with a snapshot store", stage.directory / "snapshots"), ("without", None)):
        directory = Path(stage.directory / name.replace(" ", "-"))
        directory.mkdir()
        environment = {"KAKEYA_WORKER_SNAPSHOTS": str(store)} if store else {}
        with runtime(model, directory, num_workers=0, environment=environment) as made:
            made.start_worker(lanes=settings.sessions + 1)
            wait_until(lambda: len(made.list_workers()) == 1, "the worker has joined", START_SECONDS)
            each = asyncio.run(grown(made, settings.sessions, settings.tokens, store))
        for history, (in_redis, in_files) in zip(settings.tokens, each, strict=True):
            found[f"{name}, {history} tokens"] = {"redis": Bytes(round(in_redis)), "files": Bytes(round(in_files))}
        step(name)
    return found, []
