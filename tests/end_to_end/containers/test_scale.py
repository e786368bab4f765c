"""Two routers, two HTTP shims and two workers behind a balancer: whatever is restarted or killed, clients go on."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from openai import AsyncOpenAI

import kakeya
from tests.end_to_end.containers.engine import NEEDS_ENGINE, Published, compose, container, docker, with_profiles
from tests.end_to_end.containers.load import NUM_APPENDED, NUM_GENERATED, ChatTalk, Load, SessionTalk, Talk
from tests.integration.processes import START_SECONDS, eventually

pytestmark = NEEDS_ENGINE
SCALE = with_profiles("scale")
NUM_SESSIONS = NUM_CHATS = 2
# One of each kind at a time; the other one of each serves meanwhile.
HALVES = (("router", "http-2", "worker-1"), ("router-2", "http", "worker-2"))
# Of both halves, one after the other; without them one half is killed.
ROUNDS = int(os.environ.get("KAKEYA_TEST_ROUNDS", "0"))


@pytest.fixture(scope="module")
def scaled(stack: Published) -> Iterator[Published]:
    """The stack with the profile."""
    compose(*SCALE, "build", "balancer")
    compose(*SCALE, "up", "-d", "--wait", "--no-recreate", environment=stack.environment)
    yield stack
    compose(*SCALE, "rm", "--stop", "--force", "router-2", "http-2", "balancer")


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


async def held_against(calm: Talk, disturbed: Sequence[Talk]) -> None:
    for _ in range(max(len(each.answers) for each in disturbed)):
        await calm.turn()
    for each in disturbed:
        assert each.answers == calm.answers[: len(each.answers)]


@asynccontextmanager
async def under_load(scaled: Published) -> AsyncIterator[Load]:
    """Talks through the balancer, which are held against undisturbed ones in the end."""
    http = f"http://{scaled.balanced_http}/v1"
    async with (
        kakeya.AsyncClient(scaled.balanced_grpc) as client,
        AsyncOpenAI(base_url=http, api_key="none", max_retries=5, timeout=120) as chats,
    ):
        sessions = [SessionTalk(await client.create_session()) for _ in range(NUM_SESSIONS)]
        spoken = [ChatTalk(chats) for _ in range(NUM_CHATS)]
        async with Load([*sessions, *spoken]) as load:
            await load.advance()
            yield load
            await load.advance()
            await load.end()
        for each in sessions:
            acknowledged = len(each.answers) * (NUM_APPENDED + NUM_GENERATED)
            assert (await each.session.info()).history_length == acknowledged
            await each.session.close()
        await held_against(SessionTalk(await client.create_session()), sessions)
        await held_against(ChatTalk(chats), spoken)


@pytest.mark.heavy
async def test_a_rolling_restart_is_not_noticed(scaled: Published) -> None:
    async with under_load(scaled) as load:
        for half in HALVES * max(ROUNDS, 1):
            await asyncio.to_thread(compose, *SCALE, "restart", *half)
            await load.advance()
            await serving(*half)


async def test_clients_go_on_when_a_router_a_shim_and_a_worker_are_killed(scaled: Published) -> None:
    async with under_load(scaled) as load:
        for half in HALVES * ROUNDS or HALVES[:1]:
            await asyncio.to_thread(docker, "kill", *map(container, half))
            await load.advance()
            await asyncio.to_thread(docker, "start", *map(container, half))
            if ROUNDS:
                await serving(*half)
