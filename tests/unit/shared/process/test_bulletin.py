"""One task keeps a bulletin for all who look, and none while nobody does."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from kakeya_shared.process.bulletin import Bulletin, Keeper, cancelled


class _Source:
    """What a keeper is kept by."""

    def __init__(self) -> None:
        self.num_running = self.num_begun = 0
        self.bulletins: list[Bulletin[str, int]] = []
        self.failing = asyncio.Event()

    async def keep(self, bulletin: Bulletin[str, int]) -> None:
        self.num_running += 1
        self.num_begun += 1
        self.bulletins.append(bulletin)
        try:
            await self.failing.wait()
            raise LookupError("it is away")
        finally:
            self.num_running -= 1


@pytest.fixture
async def source() -> _Source:
    return _Source()


@pytest.fixture
async def keeper(source: _Source) -> Keeper[str, int]:
    return Keeper(source.keep)


async def test_all_who_look_share_one_task_that_ends_with_the_last(keeper: Keeper[str, int], source: _Source) -> None:
    assert not keeper.is_looked_at
    async with keeper.looking() as first:
        async with keeper.looking() as second:
            await asyncio.sleep(0)
            assert first is second
            assert (source.num_running, keeper.is_looked_at) == (1, True)
        assert source.num_running == 1
    assert (source.num_running, keeper.is_looked_at) == (0, False)
    async with keeper.looking():
        await asyncio.sleep(0)
        assert source.num_begun == 2


async def test_nothing_is_told_before_it_is_whole(keeper: Keeper[str, int]) -> None:
    async with keeper.looking() as bulletin:
        waiting = asyncio.create_task(bulletin.unseen(None))
        bulletin.log.put("a", 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        bulletin.publish()
        first = await waiting
        assert first.begins
        assert [change.key for change in first.changes] == ["a"]
        waiting = asyncio.create_task(bulletin.unseen(first.version))
        bulletin.publish()  # nothing has changed
        await asyncio.sleep(0)
        assert not waiting.done()
        bulletin.log.put("b", 1)
        bulletin.publish()
        second = await waiting
        assert not second.begins
        assert [change.key for change in second.changes] == ["b"]


async def test_what_ends_it_all_viewers_raise_and_the_next_has_a_new_one(
    keeper: Keeper[str, int], source: _Source
) -> None:
    async with AsyncExitStack() as looking:
        bulletin = await looking.enter_async_context(keeper.looking())
        waiting = [asyncio.create_task(bulletin.unseen(None)) for _ in range(2)]
        await asyncio.sleep(0)
        source.failing.set()
        for task in waiting:
            with pytest.raises(LookupError):
                await task
        source.failing.clear()
        async with keeper.looking() as another:
            assert another is not bulletin
            await looking.aclose()  # those of the old one do not end the new one
            await asyncio.sleep(0)
            assert source.num_running == 1
    assert source.num_running == 0


async def test_all_can_be_sent_away(keeper: Keeper[str, int]) -> None:
    keeper.end(LookupError())  # nobody looks
    async with keeper.looking() as bulletin:
        keeper.end(LookupError("closing"))
        with pytest.raises(LookupError, match="closing"):
            await bulletin.unseen(None)


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_shared.process.bulletin._HEARD_SECONDS", 0.01)
    num_swallowed = 0

    async def stubborn() -> None:
        nonlocal num_swallowed
        while num_swallowed < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                num_swallowed += 1

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await cancelled(task)
    assert num_swallowed == 2
