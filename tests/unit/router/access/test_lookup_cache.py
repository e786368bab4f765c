"""What the router remembers of keys: for a moment, within bounds, one look-up at a time."""

import asyncio

import pytest

from kakeya_router.access.lookup_cache import LookupCache
from kakeya_shared.errors.tree import StoreUnavailable


class Store:
    """Counts what it is asked; `holding` keeps the answers back."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.asked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.error: Exception | None = None
        self.holding = asyncio.Event()
        self.holding.set()
        self.now = 0.0

    async def look_up(self, name: str) -> str | None:
        self.asked.append(name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.holding.wait()
        self.at_once -= 1
        if self.error is not None:
            raise self.error
        return self.answers.get(name)

    def cache(self, max_entries: int = 100) -> LookupCache[str]:
        return LookupCache(self.look_up, max_age_seconds=1.0, max_entries=max_entries, clock=lambda: self.now)


@pytest.fixture
async def store() -> Store:
    return Store()


@pytest.mark.parametrize("answer", ["good", None])
async def test_an_answer_is_kept_until_it_is_old(store: Store, answer: str | None) -> None:
    cache = store.cache()
    if answer is not None:
        store.answers["a"] = answer
    assert [await cache.get("a"), await cache.get("a")] == [answer, answer]
    assert store.asked == ["a"]
    store.now = 1.0
    store.answers["a"] = "new"
    assert await cache.get("a") == "new"
    assert store.asked == ["a", "a"]


async def test_age_counts_from_the_question(store: Store) -> None:
    cache = store.cache()
    store.holding.clear()
    asking = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    store.now = 0.9
    store.holding.set()
    await asking
    store.now = 1.0
    await cache.get("a")
    assert store.asked == ["a", "a"]


async def test_many_callers_are_one_look_up(store: Store) -> None:
    cache = store.cache()
    store.answers["a"] = "good"
    store.holding.clear()
    asking = [asyncio.create_task(cache.get("a")) for _ in range(50)]
    await asyncio.sleep(0)
    asking[0].cancel()  # the others are not cancelled with it
    await asyncio.sleep(0)
    store.holding.set()
    assert await asyncio.gather(*asking[1:]) == ["good"] * 49
    assert store.asked == ["a"]


async def test_errors_reach_every_caller_and_are_not_kept(store: Store) -> None:
    cache = store.cache()
    store.error = StoreUnavailable("away")
    results = await asyncio.gather(cache.get("a"), cache.get("a"), return_exceptions=True)
    assert all(result is store.error for result in results)
    store.error = None
    assert await cache.get("a") is None
    assert store.asked == ["a", "a"]


async def test_an_error_that_nobody_waits_for_is_no_more_than_that(store: Store) -> None:
    cache = store.cache()
    store.error = StoreUnavailable("away")
    store.holding.clear()
    asking = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    store.holding.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    store.error = None
    assert await cache.get("b") is None  # the loop went on; an unseen exception would be a warning, and fail


async def test_guesses_displace_each_other_and_nobody_who_is_known(store: Store) -> None:
    cache = store.cache(max_entries=10)
    store.answers["known"] = "good"
    await cache.get("known")
    for guess in range(1000):
        await cache.get(f"guess-{guess}")
    store.asked.clear()
    assert await cache.get("known") == "good"
    assert store.asked == []
    assert len(cache._unknown) == 10
    await cache.get("guess-0")
    assert store.asked == ["guess-0"]


async def test_known_names_are_bounded_too(store: Store) -> None:
    cache = store.cache(max_entries=10)
    for number in range(30):
        store.answers[str(number)] = "good"
        await cache.get(str(number))
    assert list(cache._known) == [str(number) for number in range(20, 30)]


async def test_what_was_known_and_is_not_any_more_is_on_one_shelf_only(store: Store) -> None:
    cache = store.cache()
    store.answers["a"] = "good"
    await cache.get("a")
    del store.answers["a"]
    store.now = 1.0
    assert await cache.get("a") is None
    assert (list(cache._known), list(cache._unknown)) == ([], ["a"])


async def test_few_strangers_are_looked_up_at_once_and_who_is_known_does_not_wait_for_them(store: Store) -> None:
    cache = store.cache()
    store.answers["known"] = "good"
    await cache.get("known")
    store.now = 1.0
    store.holding.clear()
    guesses = [asyncio.create_task(cache.get(f"guess-{number}")) for number in range(50)]
    await asyncio.sleep(0.01)
    assert store.at_once == 8
    known = asyncio.create_task(cache.get("known"))
    await asyncio.sleep(0.01)
    assert store.at_once == 9
    store.holding.set()
    assert await known == "good"
    assert await asyncio.gather(*guesses) == [None] * 50
    assert store.most_at_once == 9
