"""Two routers, two HTTP shims and two workers behind a balancer, under load."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from openai import AsyncOpenAI

import kakeya
from tests.end_to_end.containers.engine import Published, compose, container, docker, with_profiles
from tests.end_to_end.load import NUM_GENERATED, ChatTalk, Load, SessionTalk, held_against, nothing_is_lost
from tests.integration.processes import START_SECONDS, eventually

SCALE = with_profiles("scale")
HALVES = (("router", "http-2", "worker-1"), ("router-2", "http", "worker-2"))
"""One of each kind at a time; the other one of each serves meanwhile."""
_NUM_CHATS = 2


async def serving(*services: str) -> None:
    """Until these are healthy, and routers know both workers."""

    async def healthy() -> bool:
        health = "{{.State.Health.Status}}"
        found = await asyncio.to_thread(docker, "inspect", "-f", health, *map(container, services))
        return set(found.split()) == {"healthy"}

    async def joined() -> bool:
        asked = ("exec", "-T", "router", "kakeya", "workers", "list", "--json", "--address", "127.0.0.1:50051")
        workers = json.loads(await asyncio.to_thread(compose, *asked))
        fresh = [each for each in workers if each["last_heartbeat_age_seconds"] < 3 and not each["draining"]]
        return len(fresh) == len(workers) == 2

    await eventually(healthy, "all are healthy", START_SECONDS)
    await eventually(joined, "workers have joined", START_SECONDS)


@asynccontextmanager
async def clients_of(scaled: Published) -> AsyncIterator[tuple[kakeya.AsyncClient, AsyncOpenAI]]:
    """Through the balancer."""
    async with (
        kakeya.AsyncClient(scaled.balanced_grpc) as client,
        AsyncOpenAI(base_url=f"http://{scaled.balanced_http}/v1", api_key="none", max_retries=5, timeout=120) as chats,
    ):
        yield client, chats


@asynccontextmanager
async def under_load(scaled: Published, lengths: Sequence[int] = (NUM_GENERATED, NUM_GENERATED)) -> AsyncIterator[Load]:
    """Talks through the balancer, which are held against undisturbed ones in the end.

    Args:
        lengths: of the streams of each session, in tokens.
    """
    async with clients_of(scaled) as (client, chats):
        sessions = [SessionTalk(await client.create_session(), length) for length in lengths]
        spoken = [ChatTalk(chats) for _ in range(_NUM_CHATS)]
        async with Load([*sessions, *spoken]) as load:
            await load.advance()
            yield load
            await load.advance()
            await load.end()
        print(f"longest pause of a stream: {max(each.longest_pause for each in sessions):.1f} s")
        await nothing_is_lost(sessions)
        for length in set(lengths):
            alike = [each for each in sessions if each.num_generated == length]
            await held_against(SessionTalk(await client.create_session(), length), alike)
        await held_against(ChatTalk(chats), spoken)
