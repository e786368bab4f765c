"""Sessions by the hundred, used, abandoned and cancelled at random: nothing is left over."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

import kakeya
from tests.integration.processes import Runtime, eventually, runtime

NUM_SESSIONS, NUM_CLIENTS = 200, 16
SEED = 20260111


@pytest.fixture
def busy_runtime(model: Path, tmp_path: Path) -> Iterator[Runtime]:
    flags = ("--reap-interval-seconds=0.2",)
    with runtime(model, tmp_path, num_workers=2, router_flags=flags) as made:
        yield made


@pytest.mark.heavy
async def test_two_hundred_sessions_by_sixteen_clients_leave_nothing(busy_runtime: Runtime) -> None:
    numbers = iter(range(NUM_SESSIONS))
    outcomes: dict[str, int] = {}

    async def client_loop(client: kakeya.AsyncClient) -> None:
        for number in numbers:
            outcome = await _use_somehow(busy_runtime, client, random.Random(SEED + number))
            outcomes[outcome] = outcomes.get(outcome, 0) + 1

    clients = [kakeya.AsyncClient(busy_runtime.address) for _ in range(NUM_CLIENTS)]
    await asyncio.gather(*(client_loop(client) for client in clients))
    for client in clients:
        await client.close()
    print(outcomes)
    assert sum(outcomes.values()) == NUM_SESSIONS
    assert set(outcomes) >= {"closed", "abandoned", "cancelled", "timed out", "closed while busy"}
    await eventually(lambda: asyncio.to_thread(_nothing_is_left, busy_runtime), "nothing is left")
    for process in (*busy_runtime.routers, *busy_runtime.workers):
        assert process.process.poll() is None
        assert not psutil.Process(process.process.pid).children()
        assert "unforeseen" not in process.log.read_text()
        assert "invariant" not in process.log.read_text()


async def _use_somehow(made: Runtime, client: kakeya.AsyncClient, chance: random.Random) -> str:
    """Opens a session, uses it for some turns, and parts from it in one of the ways clients do."""
    session = await client.create_session(wait_for_capacity_seconds=60)
    for _ in range(chance.randrange(4)):
        await session.turn(range(chance.randrange(1, 120)), max_tokens=chance.randrange(1, 20)).all()
    await session.append(range(10))
    ending = chance.choice(["closed", "abandoned", "cancelled", "timed out", "closed while busy"])
    if ending == "closed":
        await session.close()
    elif ending == "cancelled":
        async with session.generate(max_tokens=65_536) as generation:
            for _ in range(chance.randrange(1, 30)):
                await generation.next_token()
    elif ending == "timed out":
        with pytest.raises(kakeya.DeadlineExceeded):
            await session.generate(max_tokens=65_536, timeout_seconds=chance.uniform(0.05, 0.3)).all()
    elif ending == "closed while busy":
        task = asyncio.create_task(session.generate(max_tokens=65_536).all())
        await asyncio.sleep(chance.uniform(0, 0.1))
        await session.close()
        with pytest.raises((kakeya.SessionClosed, kakeya.SessionNotFound)):
            await task
    while await asyncio.to_thread(made.expire, session.id):  # others wait for its lane
        await asyncio.sleep(0.1)
    return ending


def _nothing_is_left(made: Runtime) -> bool:
    """No lane, lease, ledger byte, operation record or key but those of the pool, its workers and routers."""
    workers = made.list_workers()
    if any(
        (w.reserved_bytes, w.kv_live_bytes, w.reported_kv_live_bytes, w.num_sessions) != (0, 0, 0, 0) for w in workers
    ):
        return False
    with redis.Redis.from_url(made.redis.url, decode_responses=True, protocol=2) as store:
        keys = set(store.scan_iter())
    standing = {
        "kakeya:schema",
        "kakeya:pools",
        "kakeya:routers",
        "kakeya:tunnel_ports",
        "kakeya:tunnel_secret",
        "kakeya:{demo}:workers",
    }
    standing |= {f"kakeya:{{demo}}:worker:{worker.worker_id}" for worker in workers}
    return keys <= standing
