"""SDK -> router -> worker and back, in real processes: what is said about bytes and history is true."""

import asyncio
import json
from pathlib import Path
from typing import Any

import psutil
import pytest

import kakeya
from tests.default_mode import kv_item_bytes
from tests.integration.processes import NUM_SLOTS, SINK, WINDOW, Runtime, eventually, settled


@pytest.fixture(scope="module")
def bytes_per_token(model: Path) -> int:
    """By the formula, from config.json and the type that the default mode keeps K and V in."""
    config = json.loads((model / "config.json").read_text())
    return int(config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * kv_item_bytes() * 2)


def _live(length: int, bytes_per_token: int) -> int:
    return min(length, SINK + WINDOW) * bytes_per_token


async def test_bytes_follow_the_formula_through_a_whole_conversation(
    client: kakeya.AsyncClient, bytes_per_token: int
) -> None:
    async with await client.create_session() as session:
        assert (session.sink, session.window) == (SINK, WINDOW)
        info = await session.info()
        assert (info.history_length, info.kv_live_bytes) == (0, 0)
        length = 0
        for turn in range(25):
            appended = await session.append(range(turn, turn + 11))
            length += 11
            assert appended.history_length == length
            assert appended.kv_live_bytes == _live(length, bytes_per_token)
            async with session.generate(max_tokens=5) as generation:
                tokens = [token async for token in generation]
            num_dropped = generation.truncated.num_dropped_tokens if generation.truncated else 0
            assert num_dropped == max(0, length - SINK - WINDOW)
            length += len(tokens)
            done = generation.done
            assert done is not None
            assert (done.history_length, done.kv_live_bytes) == (length, _live(length, bytes_per_token))
            info = await session.info()
            assert (info.history_length, info.kv_live_bytes) == (length, _live(length, bytes_per_token))
        assert length > 5 * (SINK + WINDOW)
        assert info.kv_live_bytes == (SINK + WINDOW) * bytes_per_token
        assert info.reserved_bytes == session.reserved_bytes == NUM_SLOTS * bytes_per_token
        assert (info.num_inv1_violations, info.num_inv2_violations) == (0, 0)
        assert await session.close() == length


async def test_bytes_are_true_after_eos_cancel_error_and_an_empty_append(
    client: kakeya.AsyncClient, bytes_per_token: int
) -> None:
    async with await client.create_session() as session:
        tokens = await _after(session, range(30)).all()
        length = 30 + len(tokens)
        before = await session.info()
        empty = await session.append([])
        after = await session.info()
        assert (empty.history_length, empty.kv_live_bytes) == (length, _live(length, bytes_per_token))
        assert (after.history_length, after.kv_live_bytes) == (before.history_length, before.kv_live_bytes)

        with pytest.raises(kakeya.TokenOutOfVocabulary):
            await session.append([1, 10**6])
        info = await session.info()
        assert (info.history_length, info.kv_live_bytes) == (length, _live(length, bytes_per_token))

        async with session.generate(max_tokens=65_536) as generation:
            tokens = []
            async for token in generation:
                tokens.append(token)
                if len(tokens) == 7:
                    break
        info = await settled(session)
        assert info.history_length >= length + 7
        assert info.kv_live_bytes == _live(info.history_length, bytes_per_token)
        length = info.history_length

        async with await client.create_session(eos_token_ids=range(1024)) as ended:
            done = await _done(_after(ended, range(3)))
            assert done.stop_reason is kakeya.StopReason.EOS
            info = await ended.info()
            assert (info.history_length, info.kv_live_bytes) == (4, 4 * bytes_per_token)

        await session.append(range(100))
        info = await session.info()
        assert (info.history_length, info.kv_live_bytes) == (length + 100, (SINK + WINDOW) * bytes_per_token)


async def test_sums_agree_between_sessions_workers_and_router(
    client: kakeya.AsyncClient, shared_runtime: Runtime
) -> None:
    sessions = [await client.create_session() for _ in range(6)]
    for number, session in enumerate(sessions):
        await _after(session, range(1 + 17 * number)).all()
    infos = [await session.info() for session in sessions]
    assert len({info.worker for info in infos}) == 2
    total = sum(info.kv_live_bytes for info in infos)

    async def agree() -> bool:
        workers = await asyncio.to_thread(shared_runtime.list_workers)
        return (
            sum(worker.kv_live_bytes for worker in workers)
            == sum(worker.reported_kv_live_bytes for worker in workers)
            == total
        )

    await eventually(agree, "the router's ledger and the workers' own sums equal the sessions'")
    workers = shared_runtime.list_workers()
    assert sum(worker.reserved_bytes for worker in workers) == sum(info.reserved_bytes for info in infos)
    for session in sessions:
        await session.close()
    workers = shared_runtime.list_workers()
    assert [(worker.reserved_bytes, worker.kv_live_bytes, worker.num_sessions) for worker in workers] == [(0, 0, 0)] * 2


async def test_what_workers_say_of_their_memory_is_what_the_system_says(shared_runtime: Runtime) -> None:
    pids = {worker.address: worker.process.pid for worker in shared_runtime.workers}

    async def agree() -> bool:
        said = {worker.address: worker.rss_bytes for worker in await asyncio.to_thread(shared_runtime.list_workers)}
        resident = {address: psutil.Process(pid).memory_info().rss for address, pid in pids.items()}
        return said == pytest.approx(resident, rel=0.02)

    await eventually(agree, "the workers' heartbeats say the resident memory of their processes")


async def test_ten_and_ten_are_twenty_across_the_wire(client: kakeya.AsyncClient) -> None:
    options: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "top_k": 100, "seed": 42}
    async with await client.create_session() as whole, await client.create_session() as halves:
        await whole.append(range(20))
        await halves.append(range(20))
        tokens = await whole.generate(max_tokens=20, **options).all()
        first = await halves.generate(max_tokens=10, **options).all()
        assert first + await halves.generate(max_tokens=10, **options).all() == tokens
        assert len(set(tokens)) > 5


async def test_four_interleaved_sessions_equal_each_alone(client: kakeya.AsyncClient) -> None:
    async def converse(prompt: int) -> list[int]:
        async with await client.create_session() as session:
            tokens = []
            for turn in range(8):
                await session.append(range(prompt, prompt + 9 + turn))
                tokens += await session.generate(max_tokens=12).all()
            return tokens

    alone = [await converse(prompt) for prompt in (0, 100, 200, 300)]
    together = await asyncio.gather(*(converse(prompt) for prompt in (0, 100, 200, 300)))
    assert together == alone


def _after(session: kakeya.AsyncSession, token_ids: range) -> kakeya.AsyncGeneration:
    return session.turn(token_ids, max_tokens=5)


async def _done(generation: kakeya.AsyncGeneration) -> kakeya.GenerateResult:
    await generation.all()
    assert generation.done is not None
    return generation.done
