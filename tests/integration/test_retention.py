"""What a session keeps, through the whole runtime: pins, windows of its own, refusing to forget, and saying so."""

from typing import Any

import pytest

import kakeya
from tests.integration.processes import SINK, WINDOW, Runtime


async def test_a_pin_divides_the_lane(client: kakeya.AsyncClient) -> None:
    async with await client.create_session(pin=30) as session:
        assert (session.sink, session.window) == (30, SINK + WINDOW - 30)
        await session.append(range(200))
        info = await session.info()
        assert info.retained == (range(30), range(162, 200))
        async with session.generate(max_tokens=7) as generation:
            tokens = [token async for token in generation]
        assert len(tokens) == 7
        assert generation.truncated is not None
        assert generation.truncated.retained == (range(30), range(162, 200))
        assert generation.truncated.num_dropped_tokens == 132
        assert generation.done is not None
        assert generation.done.retained == (range(30), range(169, 207))


async def test_a_session_may_ask_for_less(client: kakeya.AsyncClient, shared_runtime: Runtime) -> None:
    bytes_per_token = shared_runtime.list_workers()[0].kv_bytes_per_token
    async with await client.create_session(sink=0, window=10) as session:
        appended = await session.append(range(50))
        assert appended.kv_live_bytes == 10 * bytes_per_token
        assert (await session.info()).retained == (range(40, 50),)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"pin": SINK + WINDOW}, "pin"),
        ({"sink": SINK + WINDOW}, "sink"),
        ({"window": WINDOW + 1}, "window"),
        ({"window": 0}, "window"),
        ({"sink": 60, "window": 9}, "window"),
        ({"pin": 2**32 - 1}, "pin"),
    ],
)
async def test_what_no_lane_can_hold_is_refused(
    client: kakeya.AsyncClient, shared_runtime: Runtime, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(kakeya.InvalidField) as caught:
        await client.create_session(**options)
    assert caught.value.metadata["field"] == field
    assert sum(worker.num_sessions for worker in shared_runtime.list_workers()) == 0


async def test_a_session_that_refuses_to_forget(client: kakeya.AsyncClient) -> None:
    capacity = SINK + WINDOW
    async with await client.create_session(on_overflow="refuse") as session:
        await session.append(range(60))
        with pytest.raises(kakeya.HistoryFull) as caught:
            await session.append(range(9))
        assert caught.value.metadata["room"] == "8"
        assert (await session.info()).history_length == 60, "nothing is changed"
        await session.append(range(5))
        async with session.generate(max_tokens=100) as generation:
            tokens = [token async for token in generation]
        assert len(tokens) == 3
        assert generation.done is not None
        assert generation.done.stop_reason is kakeya.StopReason.TRUNCATED
        info = await session.info()
        assert (info.history_length, info.retained) == (capacity, (range(capacity),))
        async with session.generate(max_tokens=1) as generation:
            assert [token async for token in generation] == []
        assert generation.truncated is None
        assert generation.done is not None
        assert generation.done.stop_reason is kakeya.StopReason.TRUNCATED
        assert (await session.append([])).history_length == capacity


async def test_a_pinned_session_says_the_same_wherever_its_tokens_were_cut(client: kakeya.AsyncClient) -> None:
    async def tokens(sizes: list[int]) -> list[int]:
        async with await client.create_session(pin=20) as session:
            start = 0
            for size in sizes:
                await session.append(range(start, start + size))
                start += size
            async with session.generate(max_tokens=20, temperature=1.0, seed=5) as generation:
                return [token async for token in generation]

    whole = await tokens([300])
    assert len(set(whole)) > 10
    assert await tokens([1, 99, 7, 33, 160]) == whole
