"""Two routers, two HTTP shims and two workers behind a balancer: whatever is restarted or killed, clients go on."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.end_to_end.containers.engine import NEEDS_ENGINE, Published, compose, container, docker, held_down
from tests.end_to_end.containers.scaled import HALVES, SCALE, serving, under_load

pytestmark = NEEDS_ENGINE
# Of both halves, one after the other; without them one half is killed.
ROUNDS = int(os.environ.get("KAKEYA_TEST_ROUNDS", "0"))


@pytest.fixture(scope="module")
def scaled(stack: Published) -> Iterator[Published]:
    """The stack with the profile."""
    compose(*SCALE, "build", "balancer")
    compose(*SCALE, "up", "-d", "--wait", "--no-recreate", environment=stack.environment)
    yield stack
    compose(*SCALE, "rm", "--stop", "--force", "router-2", "http-2", "balancer")


def test_the_balancer_has_no_rights_and_writes_nowhere(scaled: Published) -> None:
    held_down("balancer")


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
