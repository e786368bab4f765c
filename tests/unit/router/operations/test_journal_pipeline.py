"""Tokens of many answers that are written together: each has an answer of its own, and its own end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import pytest
import structlog

from kakeya_router.metrics import no_metrics
from kakeya_router.operations import journal as journal_module
from kakeya_router.operations.journal import Journal, JournalGroups
from kakeya_router.store.session_record import Claim, Epoch, PoolName, SessionId, SessionRecord
from kakeya_router.store.sessions.operation_store import JournalEnd, JournalPart
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import Taken, unpack
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.unit.router.admission_stores import KEYS, POOL, Stores, stores_on, worker_record
from tests.unit.router.session_stores import SessionStores

NEVER_SECONDS = 3600.0
GROUP = tuple(range(journal_module._GROUP_TOKENS))
RUN, LATER = Claim("run"), Claim("later")
GENERATE = Intent("generate", {})
NAMES = ("one", "two", "three")


@pytest.fixture
async def stores(redis_url: str) -> AsyncIterator[Stores]:
    async with stores_on(redis_url) as stores:
        await stores.workers.join(worker_record(num_lanes=8))
        yield stores


class Watched(SessionStores):
    """Of the stores of a test. It remembers which sessions each round trip was for.

    Attributes:
        failures: what is raised instead of the next ones.
        silent: pools that have no answer until their event is set.
    """

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.redis)
        self.round_trips: list[list[SessionId]] = []
        self.failures: list[Exception] = []
        self.silent: dict[PoolName, asyncio.Event] = {}

    async def extend_journals(self, parts: Sequence[JournalPart]) -> list[JournalEnd | Exception]:
        self.round_trips.append([part.record.session_id for part in parts])
        if (answers := self.silent.get(parts[0].record.pool)) is not None:
            await answers.wait()
        if self.failures:
            raise self.failures.pop(0)
        return await super().extend_journals(parts)


@dataclass
class Answers:
    """Journals of running operations, by the names of their sessions."""

    store: Watched
    journals: dict[str, Journal] = field(default_factory=dict)
    written: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.groups = JournalGroups(self.store, DetachedTasks(), no_metrics())

    def begin(self, record: SessionRecord, name: str, claim: Claim = RUN) -> Journal:
        lengths = self.written[name] = list[int]()
        journal = Journal(self.store, self.groups, record, claim, 1000, lengths.append)
        self.journals[name] = journal
        return journal

    @contextmanager
    def writing(self) -> Iterator[None]:
        with ExitStack() as stack:
            for journal in self.journals.values():
                stack.enter_context(journal.writing())
            yield

    def add(self, token_ids: Sequence[int], *names: str) -> None:
        for name in names or self.journals:
            for token_id in token_ids:
                self.journals[name].add(token_id)


@pytest.fixture
async def answers(stores: Stores) -> Answers:
    """Of three sessions whose histories are empty."""
    made = Answers(Watched(stores))
    for name in NAMES:
        begun = await stores.sessions.begin_operation(await stores.opened(name), RUN, GENERATE)
        made.begin(begun.record, name)
    return made


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def journaled(stores: Stores) -> dict[str, list[int]]:
    return {
        name: unpack(await stores.redis.read_bytes(KEYS.journal(SessionId(f"p.{name}")), 0, 1000)) for name in NAMES
    }


async def test_all_that_came_within_a_pause_is_one_round_trip(answers: Answers, stores: Stores) -> None:
    with answers.writing():
        answers.add([1, 2], "one", "three")
        await asyncio.sleep(0.01)
        answers.add([3])
        await until(lambda: all(answers.written.values()))
    assert answers.store.round_trips == [["p.one", "p.three", "p.two"]]
    assert answers.written == {"one": [3], "two": [1], "three": [3]}
    assert await journaled(stores) == {"one": [1, 2, 3], "two": [3], "three": [1, 2, 3]}


async def test_a_group_does_not_take_along_what_is_none(
    answers: Answers, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At full speed others would be written a token at a time."""
    monkeypatch.setattr(journal_module, "_GROUP_SECONDS", NEVER_SECONDS)
    with answers.writing():
        answers.add([7], "one")
        answers.add(GROUP, "two", "three")
        await until(lambda: bool(answers.written["two"] and answers.written["three"]))
        assert answers.store.round_trips == [["p.two", "p.three"]]
        assert answers.journals["one"].pending == [7]
        answers.add(GROUP[1:], "one")
        await until(lambda: bool(answers.written["one"]))
    assert await journaled(stores) == {"one": [7, *GROUP[1:]], "two": [*GROUP], "three": [*GROUP]}


async def test_who_is_overtaken_fails_alone(answers: Answers, stores: Stores) -> None:
    """By the operation, by the epoch and by the length of each session for itself."""
    frozen = answers.journals["one"].record
    await stores.sessions.release_operation(frozen, RUN)
    await stores.sessions.begin_operation(frozen, LATER, GENERATE)
    await stores.sessions.extend_journal(frozen, LATER, 0, [9, 9], 1000)
    answers.journals["three"].record = replace(answers.journals["three"].record, epoch=Epoch(77))
    with answers.writing():
        answers.add(GROUP)
        await until(lambda: bool(answers.written["two"]))
        for name in ("one", "three"):
            with pytest.raises(Taken):
                answers.add([5], name)
        answers.add([5], "two")
        await until(lambda: answers.written["two"] == [16, 17])
    assert await journaled(stores) == {"one": [9, 9], "two": [*GROUP, 5], "three": []}
    assert answers.written == {"one": [], "two": [16, 17], "three": []}
    assert len(answers.store.round_trips[0]) == 3


async def test_what_does_not_follow_on_fails_alone(answers: Answers, stores: Stores) -> None:
    answers.journals["one"].length = 4  # of a history that Redis has lost, say
    with answers.writing():
        answers.add(GROUP)
        await until(lambda: bool(answers.written["two"] and answers.written["three"]))
        with pytest.raises(Taken):
            answers.add([5], "one")
    assert await journaled(stores) == {"one": [], "two": [*GROUP], "three": [*GROUP]}


async def test_what_redis_refuses_of_one_is_its_alone(answers: Answers, stores: Stores) -> None:
    await stores.redis.call(lambda redis: redis.lpush(KEYS.journal(SessionId("p.two")), "no string"))
    with structlog.testing.capture_logs() as lines, answers.writing():
        answers.add(GROUP)
        await until(lambda: bool(answers.written["one"] and answers.written["three"]))
        with pytest.raises(Exception, match="WRONGTYPE"):
            answers.add([5], "two")
    assert [(line["event"], line["session_id"]) for line in lines] == [("the journal cannot be written", "p.two")]
    assert answers.journals["two"].pending == [*GROUP]


async def test_a_redis_that_does_not_answer_fails_all_of_them(answers: Answers, stores: Stores) -> None:
    answers.store.failures = [StoreUnavailable("Redis does not answer")]
    with answers.writing():
        answers.add(GROUP)
        await until(lambda: bool(answers.store.round_trips))
        await asyncio.sleep(0.01)
        for name in NAMES:
            with pytest.raises(StoreUnavailable):
                answers.add([5], name)
    assert [journal.pending for journal in answers.journals.values()] == [[*GROUP]] * 3
    for journal in answers.journals.values():
        await journal.flush()
    assert await journaled(stores) == {name: [*GROUP] for name in NAMES}


async def test_a_redis_that_takes_no_writes_says_so_to_each(answers: Answers, stores: Stores) -> None:
    await stores.redis.call(lambda redis: redis.config_set("maxmemory", 1))
    try:
        with answers.writing():
            answers.add(GROUP)
            await until(lambda: bool(answers.store.round_trips))
            await until(lambda: all(journal._error is not None for journal in answers.journals.values()))
            for name in NAMES:
                with pytest.raises(StoreUnavailable, match="OOM"):
                    answers.add([5], name)
        assert not stores.redis.answers_for(0.0), "it is not well"
    finally:
        await stores.redis.call(lambda redis: redis.config_set("maxmemory", 0))
    assert await journaled(stores) == {name: [] for name in NAMES}


async def test_a_server_that_does_not_know_the_script_is_told_it(answers: Answers, stores: Stores) -> None:
    await stores.redis.call(lambda redis: redis.script_flush())
    with answers.writing():
        answers.add(GROUP)
        await until(lambda: all(answers.written.values()))
    assert await journaled(stores) == {name: [*GROUP] for name in NAMES}


async def test_pools_do_not_wait_for_one_another(answers: Answers, stores: Stores) -> None:
    """They may be on different servers, of which one is silent."""
    answers.store.silent[POOL] = asyncio.Event()
    elsewhere = replace(answers.journals["one"].record, pool=PoolName("q"), session_id=SessionId("q.four"))
    answers.begin(elsewhere, "four")
    with answers.writing():
        answers.add(GROUP)
        await until(lambda: len(answers.store.round_trips) == 2)
        await until(lambda: answers.journals["four"]._error is not None)  # it is not there, which was told
        assert isinstance(answers.journals["four"]._error, Taken)
        assert not any(answers.written.values())
        answers.store.silent[POOL].set()
        await until(lambda: all(answers.written[name] for name in NAMES))


async def test_groups_that_came_while_others_were_written_are_next(
    answers: Answers, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_GROUP_SECONDS", NEVER_SECONDS)
    answers.store.silent[POOL] = asyncio.Event()
    with answers.writing():
        answers.add(GROUP, "one")
        await until(lambda: len(answers.store.round_trips) == 1)
        answers.add(GROUP)
        await asyncio.sleep(0.01)
        assert len(answers.store.round_trips) == 1, "one at a time"
        answers.store.silent[POOL].set()
        await until(lambda: answers.written == {"one": [16, 32], "two": [16], "three": [16]})
    assert answers.store.round_trips == [["p.one"], ["p.one", "p.two", "p.three"]]


async def test_after_a_group_that_failed_none_that_came_meanwhile_is_written(
    answers: Answers, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_GROUP_SECONDS", 0)
    answers.store.silent[POOL] = asyncio.Event()
    answers.store.failures = [StoreUnavailable("Redis does not answer")]
    with answers.writing():
        answers.add(GROUP, "one")
        await until(lambda: len(answers.store.round_trips) == 1)
        answers.add(GROUP, "one", "two")
        answers.store.silent[POOL].set()
        await until(lambda: bool(answers.written["two"]))
        with pytest.raises(StoreUnavailable):
            answers.add([5], "one")
    assert answers.store.round_trips == [["p.one"], ["p.two"]]
    assert answers.journals["one"].pending == [*GROUP, *GROUP]


async def test_who_leaves_is_not_written_and_nothing_is_left_over(answers: Answers, stores: Stores) -> None:
    with answers.writing():
        answers.add([1])
    await until(lambda: not answers.groups._pools)
    assert (answers.store.round_trips, await journaled(stores)) == ([], {name: [] for name in NAMES})


async def test_a_group_whose_journal_leaves_is_no_round_trip(answers: Answers, stores: Stores) -> None:
    with answers.writing():
        with answers.journals["one"].writing():
            answers.add(GROUP, "one")
        answers.add([1], "two")
        await until(lambda: bool(answers.written["two"]))
    assert answers.store.round_trips == [["p.two"]]
    assert await stores.sessions.extend_journals([]) == []
