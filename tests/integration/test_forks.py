"""Sessions that branch off from one prepared session, in real processes: their answers, their bytes, their worker."""

import asyncio
from typing import Any

import pytest

import kakeya
from tests.integration.processes import SINK, WINDOW, Runtime, eventually

SEEDED: dict[str, Any] = {"temperature": 1.0, "seed": 5, "logprobs": 5}
Said = list[tuple[int, kakeya.TokenDetail]]


async def said(session: kakeya.AsyncSession, token_ids: range = range(0), **options: Any) -> Said:
    """Tokens with the log-probabilities of their choices, which tell of the logits' bits."""
    async with session.turn(token_ids, max_tokens=12, **(SEEDED | options)) as generation:
        tokens = [token async for token in generation]
    return list(zip(tokens, generation.details, strict=True))


async def test_forks_answer_as_their_source_and_as_a_session_that_was_prefilled(client: kakeya.AsyncClient) -> None:
    for length in (SINK + 7, 3 * (SINK + WINDOW)):
        async with await client.create_session() as source, await client.create_session() as prefilled:
            appended = await source.append(range(length))
            async with await client.create_session(fork_from=source) as fork:
                info = await fork.info()
                assert (fork.history_length, info.history_length) == (length, length)
                assert (info.kv_live_bytes, info.retained) == (appended.kv_live_bytes, appended.retained)
                assert info.worker == (await source.info()).worker
                first = await said(fork)
                assert len({token for token, _ in first}) > 6
                again = await said(fork, range(50, 60), temperature=0.0)
            await prefilled.append(range(length))
            assert await said(prefilled) == await said(source) == first
            assert await said(prefilled, range(50, 60), temperature=0.0) == again


async def test_many_forks_at_once_beside_somebody_who_generates(
    client: kakeya.AsyncClient, shared_runtime: Runtime
) -> None:
    async with await client.create_session() as source:
        await source.append(range(100))
        worker = (await source.info()).worker
        neighbour = await client.create_session(fork_from=source.id)
        generating = asyncio.create_task(neighbour.generate(max_tokens=300, logprobs=5).all())
        forks = await asyncio.gather(*(client.create_session(fork_from=source, boundary=100) for _ in range(6)))
        with pytest.raises(kakeya.DeadlineExceeded):  # the source's worker is full, and the other cannot help
            await client.create_session(fork_from=source, timeout_seconds=0.5)
        answers = await asyncio.gather(*(said(fork) for fork in forks))
        assert answers == [await said(source)] * 6
        await generating
        await source.close()
        later = await asyncio.gather(*(said(fork) for fork in forks))
        assert later == [later[0]] * 6
        for session in (neighbour, *forks):
            assert (await session.info()).worker == worker
            await session.close()

    async def nothing_is_left() -> bool:
        workers = await asyncio.to_thread(shared_runtime.list_workers)
        return not any(each.reserved_bytes or each.reported_kv_live_bytes for each in workers)

    await eventually(nothing_is_left, "the lanes of all forks are free")


async def test_a_source_that_generates_is_let_alone(client: kakeya.AsyncClient) -> None:
    async with await client.create_session() as source:
        await source.append(range(10))
        async with source.generate(max_tokens=60_000) as generation:
            async for _ in generation:
                with pytest.raises(kakeya.OperationRunning):
                    await client.create_session(fork_from=source.id)
                break
        async with await client.create_session(fork_from=source) as fork:  # waits until it has stopped
            assert fork.history_length == (await source.info()).history_length > 10
