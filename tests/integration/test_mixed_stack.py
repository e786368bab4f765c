"""Workers of two backends serve one model together: what a session keeps is exact on both, and one that may goes to
and fro between them.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import kakeya
from tests.integration.processes import LONG_SECONDS, SINK, WINDOW, Runtime, runtime
from tests.integration.test_draining import command
from tests.random_checkpoint import CONFIG

ROUTER_FLAGS = (
    "--heartbeat-interval-seconds=0.3",
    "--reap-interval-seconds=0.2",
    "--queue-seconds=1",
)
# K and V of float32.
BYTES_PER_TOKEN = 2 * 4 * CONFIG["num_hidden_layers"] * CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
# |dlogit| <= 1e-4 x max|logit| (docs/numerics.md); a log-probability is off by twice that at most.
TOLERANCE = 1e-4
NUM_TOP = 20


@pytest.fixture
def mixed(model: Path, tmp_path: Path) -> Iterator[Runtime]:
    """A worker of each backend, named after it, and one snapshot store."""
    environment = {"KAKEYA_WORKER_SNAPSHOTS": str(tmp_path / "snapshots")}
    with runtime(model, tmp_path, num_workers=0, router_flags=ROUTER_FLAGS, environment=environment) as made:
        for backend in ("torch", "mlx"):
            made.start_worker("--backend", backend, "--worker-id", backend, "--weights", "float32")
        made.wait_for_workers(2)
        yield made


@pytest.fixture
async def client(mixed: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(mixed.address, max_attempts=1) as client:
        await both_get_sessions(client)
        yield client


async def both_get_sessions(client: kakeya.AsyncClient) -> None:
    """Returns when the router has seen both workers."""
    async with asyncio.timeout(60):
        seen = set[str]()
        while len(seen) < 2:
            one, other = [await client.create_session() for _ in range(2)]
            seen = {(await session.info()).worker for session in (one, other)}
            for session in (one, other):
                await session.close()


def fingerprint_of(mixed: Runtime, worker_id: str) -> str:
    return next(worker.fingerprint for worker in mixed.list_workers() if worker.worker_id == worker_id)


async def drain(mixed: Runtime, worker_id: str, *flags: str) -> None:
    status, output = await command(mixed, "workers", "drain", worker_id, *(flags or ("--wait", "--timeout", "30s")))
    assert status == 0, output


async def turn(session: kakeya.AsyncSession, number: int) -> list[kakeya.TokenDetail]:
    await session.append(range(number * 40, number * 40 + 40))
    async with session.generate(max_tokens=20, logprobs=NUM_TOP) as generation:
        async for _ in generation:
            continue
    return generation.details


def check_near(details: list[kakeya.TokenDetail], expected: list[kakeya.TokenDetail]) -> None:
    """The same tokens, with log-probabilities within the tolerance of float32."""
    assert [each.token_id for each in details] == [each.token_id for each in expected]
    for one, other in zip(details, expected, strict=True):
        likeliest = list(other.top_logprobs.values())
        bound = TOLERANCE * (likeliest[0] - likeliest[-1])  # twice max|logit| is no less
        common = one.top_logprobs.keys() & other.top_logprobs.keys()
        assert len(common) >= NUM_TOP - 1, "the last of them may be a tie"
        assert max(abs(one.top_logprobs[id_] - other.top_logprobs[id_]) for id_ in common) <= bound


async def test_sessions_land_on_both_and_what_they_keep_is_exact(mixed: Runtime, client: kakeya.AsyncClient) -> None:
    sessions = [await client.create_session() for _ in range(4)]
    for number, session in enumerate(sessions):
        await session.append(range(10 + 30 * number))
        assert len([token_id async for token_id in session.generate(max_tokens=5)]) == 5
    infos = [await session.info() for session in sessions]
    assert sorted(info.worker for info in infos) == ["mlx", "mlx", "torch", "torch"]
    for number, info in enumerate(infos):
        assert info.history_length == 15 + 30 * number
        assert info.kv_live_bytes == min(info.history_length, SINK + WINDOW) * BYTES_PER_TOKEN
        assert not info.exact
    for worker in mixed.list_workers():
        live = sum(info.kv_live_bytes for info in infos if info.worker == worker.worker_id)
        assert (worker.kv_bytes_per_token, worker.kv_live_bytes) == (BYTES_PER_TOKEN, live)
        assert worker.backend == worker.worker_id

    async def reported() -> list[int]:
        return [worker.reported_kv_live_bytes - worker.kv_live_bytes for worker in mixed.list_workers()]

    async with asyncio.timeout(LONG_SECONDS):
        while await reported() != [0, 0]:
            await asyncio.sleep(0.1)


async def test_a_session_that_may_goes_to_mlx_and_back(mixed: Runtime, client: kakeya.AsyncClient) -> None:
    of_torch = fingerprint_of(mixed, "torch")
    undisturbed = await client.create_session(fingerprint=of_torch)
    expected = [await turn(undisturbed, number) for number in range(4)]
    token_ids = [each.token_id for details in expected for each in details]
    assert len(set(token_ids)) > 30
    await undisturbed.close()
    session = await client.create_session(fingerprint=of_torch, inexact_resume=True)
    bound = await client.create_session(fingerprint=of_torch)
    check_near(await turn(session, 0), expected[0])
    await bound.append(range(10))

    await drain(mixed, "torch")
    check_near(await turn(session, 1), expected[1])
    check_near(await turn(session, 2), expected[2])
    info = await session.info()
    assert (info.worker, info.fingerprint) == ("mlx", fingerprint_of(mixed, "mlx"))
    assert (info.history_length, info.kv_live_bytes) == (180, (SINK + WINDOW) * BYTES_PER_TOKEN)
    with pytest.raises(kakeya.QueueTimedOut):  # its own might come back
        await bound.append([1])
    assert (await bound.info()).state is kakeya.SessionState.PARKED

    await drain(mixed, "torch", "--undo")
    await drain(mixed, "mlx")
    check_near(await turn(session, 3), expected[3])
    info = await session.info()
    assert (info.worker, info.fingerprint, info.exact) == ("torch", of_torch, False)
    assert (info.history_length, info.kv_live_bytes) == (240, (SINK + WINDOW) * BYTES_PER_TOKEN)
    assert (await bound.append([1])).history_length == 11


async def test_an_answer_goes_on_with_the_other_backend(mixed: Runtime, client: kakeya.AsyncClient) -> None:
    """What was delivered stands, and is what the rest follows."""
    session = await client.create_session(fingerprint=fingerprint_of(mixed, "torch"), inexact_resume=True)
    bound = await client.create_session(fingerprint=fingerprint_of(mixed, "torch"))
    for each in (session, bound):
        await each.append(range(50))
    seen: list[int] = []
    async with session.generate(max_tokens=300, temperature=1.0, seed=11) as generation:
        async for token_id in generation:
            seen.append(token_id)
            if len(seen) == 40:
                os.kill(mixed.workers[0].process.pid, signal.SIGKILL)
    assert len(seen) == 300
    info = await session.info()
    assert (info.worker, info.epoch > 1, info.history_length) == ("mlx", True, 350)
    mixed.lapse(mixed.workers[0])
    await asyncio.to_thread(mixed.wait_for_workers, 1)
    with pytest.raises(kakeya.NoWorker, match="fingerprint"):
        await bound.append([1])
    again = await client.create_session()
    await again.append([*range(50), *seen])
    check_near(await turn(session, 2), await turn(again, 2))
