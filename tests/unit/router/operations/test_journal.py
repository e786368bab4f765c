"""Generated tokens on their way into Redis: in groups, and not one of them lost where Redis fails."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from kakeya_router.metrics import no_metrics
from kakeya_router.operations import journal as journal_module
from kakeya_router.operations.journal import Journal, JournalGroups
from kakeya_router.operations.operation import Operation
from kakeya_router.operations.recovery import is_broken
from kakeya_router.store.outcomes import ExtendJournal
from kakeya_router.store.session_record import (
    Claim,
    Epoch,
    Incarnation,
    PoolName,
    SessionId,
    SessionRecord,
    State,
    WorkerId,
)
from kakeya_router.store.sessions.operation_store import JournalEnd, JournalPart, OperationStore
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import BYTES_PER_TOKEN, Taken, pack, unpack
from kakeya_shared.errors.tree import OperationStopped, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks

RECORD = SessionRecord(
    session_id=SessionId("p.one"),
    pool=PoolName("p"),
    state=State.OPEN,
    model="m",
    worker_id=WorkerId("w"),
    incarnation=Incarnation("i"),
    address="127.0.0.1:1",
    epoch=Epoch(1),
    sink=1,
    window=4,
    vocab_size=100,
    reserved_bytes=100,
    ttl_ms=60_000,
    journal_length=7,
)
CLAIM = Claim("claim")
MAX_TOKENS = 1000
GROUP = tuple(range(16))
NEVER_SECONDS = 3600.0

Fault = str | Exception


class ScriptedStore:
    """Takes tokens, unless a fault is next: an exception, or another outcome.

    Attributes:
        writes: what was asked for, answered or not: the history index of the first token, and the tokens.
        records: that came with them.
        answers: cleared, it holds all answers back.
    """

    def __init__(self, *faults: Fault) -> None:
        self.writes: list[tuple[int, tuple[int, ...]]] = []
        self.records: list[SessionRecord] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self._faults = list(faults)

    async def extend_journal(
        self,
        record: SessionRecord,
        claim: str,
        start: int,
        token_ids: Sequence[int],
        max_tokens: int,
        start_tags: Sequence[str] = (),
    ) -> JournalEnd:
        assert (claim, max_tokens, start_tags) == (CLAIM, MAX_TOKENS, ())
        self.writes.append((start, tuple(token_ids)))
        self.records.append(record)
        await self.answers.wait()
        fault = self._faults.pop(0) if self._faults else "extended"
        if isinstance(fault, Exception):
            raise fault
        return JournalEnd(ExtendJournal(fault), start + len(token_ids))

    async def extend_journals(self, parts: Sequence[JournalPart]) -> list[JournalEnd | Exception]:
        return [
            await self.extend_journal(part.record, part.claim, part.start, part.token_ids, part.max_tokens)
            for part in parts
        ]


class Written:
    """The lengths that a journal has told."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    async def until(self, length: int) -> None:
        await until(lambda: length in self.lengths)


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a full group is written."""
    monkeypatch.setattr(journal_module, "_GROUP_SECONDS", NEVER_SECONDS)


def journal_on(store: ScriptedStore, written: Written) -> Journal:
    made = cast(OperationStore, store)
    groups = JournalGroups(made, DetachedTasks(), no_metrics())
    return Journal(made, groups, RECORD, CLAIM, MAX_TOKENS, written.lengths.append)


def add_all(journal: Journal, token_ids: Sequence[int]) -> None:
    for token_id in token_ids:
        journal.add(token_id)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def settled() -> None:
    """All that can go on without the passing of time has."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def refusing(fault: Fault, written: Written) -> AsyncIterator[Journal]:
    """A journal whose first group could not be written."""
    store = ScriptedStore(fault)
    journal = journal_on(store, written)
    with journal.writing():
        add_all(journal, GROUP)
        await until(lambda: bool(store.writes))
        await settled()
        yield journal
    assert len(store.writes) == 1  # it is not tried again by itself


@asynccontextmanager
async def in_a_write(store: ScriptedStore, written: Written) -> AsyncIterator[Journal]:
    """A journal whose first group is being written, until the store's answers are set."""
    journal = journal_on(store, written)
    store.answers.clear()
    with journal.writing():
        add_all(journal, GROUP)
        await until(lambda: bool(store.writes))
        yield journal


@pytest.mark.usefixtures("_no_pauses")
async def test_sixteen_tokens_are_a_group(written: Written) -> None:
    store = ScriptedStore()
    journal = journal_on(store, written)
    with journal.writing():
        add_all(journal, GROUP[:-1])
        await settled()
        assert (store.writes, journal.length, len(journal.pending)) == ([], 7, 15)
        journal.add(GROUP[-1])
        await written.until(23)
        assert (store.writes, journal.length, journal.pending) == ([(7, GROUP)], 23, [])
        journal.add(50)
        await settled()
        assert (len(store.writes), journal.pending) == (1, [50])  # of the next group


@pytest.mark.usefixtures("_no_pauses")
async def test_a_group_has_waited_since_its_first_token(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(100.0)
    monkeypatch.setattr(journal_module, "time", SimpleNamespace(monotonic=lambda: next(now)))
    async with in_a_write(ScriptedStore(), written) as journal:
        assert journal.waits_since == 100.0
        add_all(journal, GROUP)  # while the first group is being written
        assert journal.waits_since == 101.0
        assert journal.part().waits_since == 101.0


async def test_fewer_are_written_together_after_a_pause(written: Written) -> None:
    store = ScriptedStore()
    journal = journal_on(store, written)
    clock = asyncio.get_running_loop().time
    with journal.writing():
        journal.add(50)
        started = clock()
        await asyncio.sleep(0.01)
        journal.add(51)
        await written.until(9)
        assert clock() - started >= 0.049  # the loop's clock may be late by a tick
        journal.add(52)
        await written.until(10)
    assert store.writes == [(7, (50, 51)), (9, (52,))]
    assert (journal.length, journal.pending, written.lengths) == (10, [], [9, 10])


@pytest.mark.usefixtures("_no_pauses")
async def test_what_comes_during_a_write_is_of_the_next_group(written: Written) -> None:
    """Not written as soon as it can be, which were a write for each token of a model that is about as fast as Redis."""
    store = ScriptedStore()
    async with in_a_write(store, written) as journal:
        add_all(journal, GROUP[:-1])
        await settled()
        assert (journal.length, journal.pending) == (7, [*GROUP, *GROUP[:-1]])
        store.answers.set()
        await written.until(23)
        await settled()
        assert (store.writes, journal.pending) == ([(7, GROUP)], [*GROUP[:-1]])
        journal.add(50)
        await written.until(39)
    assert store.writes == [(7, GROUP), (23, (*GROUP[:-1], 50))]
    assert (journal.length, journal.pending) == (39, [])


async def test_what_came_during_a_write_and_is_no_group_waits_for_a_pause(written: Written) -> None:
    store = ScriptedStore()
    async with in_a_write(store, written) as journal:
        journal.add(50)
        store.answers.set()
        await written.until(24)
    assert store.writes == [(7, GROUP), (23, (50,))]


@pytest.mark.usefixtures("_no_pauses")
async def test_a_group_that_came_during_a_write_is_written_after_it(written: Written) -> None:
    store = ScriptedStore()
    async with in_a_write(store, written) as journal:
        add_all(journal, GROUP)
        store.answers.set()
        await written.until(39)
    assert store.writes == [(7, GROUP), (23, GROUP)]


async def test_nothing_is_written_while_nothing_comes(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_GROUP_SECONDS", 0)
    store = ScriptedStore()
    journal = journal_on(store, written)
    with journal.writing():
        await asyncio.sleep(0.02)
        assert (store.writes, written.lengths) == ([], [])
        journal.add(50)
        await asyncio.sleep(0.02)
    assert (store.writes, written.lengths) == ([(7, (50,))], [8])


@pytest.mark.usefixtures("_no_pauses")
async def test_what_is_pending_on_the_way_out_stays_so(written: Written) -> None:
    store = ScriptedStore()
    journal = journal_on(store, written)
    with journal.writing():
        add_all(journal, [50, 51])
        await settled()
    add_all(journal, GROUP)  # nobody writes any more
    await settled()
    assert (store.writes, journal.length, journal.pending) == ([], 7, [50, 51, *GROUP])


@pytest.mark.usefixtures("_no_pauses")
async def test_a_write_that_was_cut_off_on_the_way_out_is_repeated(written: Written) -> None:
    store = ScriptedStore()
    async with in_a_write(store, written) as journal:
        journal.add(50)
    assert (journal.length, journal.pending, written.lengths) == (7, [*GROUP, 50], [])
    store.answers.set()
    await journal.flush()
    assert store.writes == [(7, GROUP), (7, (*GROUP, 50))]  # Redis skips what it has
    assert (journal.length, journal.pending) == (24, [])


async def test_the_way_out_ends_the_writing_whatever_happened_inside(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_GROUP_SECONDS", 0)
    store, before = ScriptedStore(), asyncio.all_tasks()
    journal = journal_on(store, written)
    with pytest.raises(ZeroDivisionError), journal.writing():
        journal.add(50)
        raise ZeroDivisionError
    await until(lambda: asyncio.all_tasks() == before)
    assert (store.writes, journal.pending) == ([], [50])


@pytest.mark.usefixtures("_no_pauses")
async def test_an_answer_that_comes_after_the_way_out_is_not_heard(written: Written) -> None:
    """The tokens are written again, since nobody knows whether they were; that must not count them twice."""
    store = ScriptedStore()
    async with in_a_write(store, written) as journal:
        pass
    with journal.writing():
        store.answers.set()
        await until(lambda: len(store.writes) == 2)  # it has a group, which the way in asks for
        await written.until(23)
    assert store.writes == [(7, GROUP), (7, GROUP)]
    assert (journal.length, journal.pending, written.lengths) == (23, [], [23])


@pytest.mark.usefixtures("_no_pauses")
@pytest.mark.parametrize(
    ("fault", "raised"), [(StoreUnavailable("Redis does not answer"), StoreUnavailable), ("gone", Taken)]
)
async def test_after_a_group_that_is_not_taken_no_more_is_added(
    written: Written, fault: Fault, raised: type[Exception]
) -> None:
    with structlog.testing.capture_logs() as lines:
        async with refusing(fault, written) as journal:
            for _ in range(2):
                with pytest.raises(raised):
                    journal.add(50)
    assert (journal.length, journal.pending, written.lengths) == (7, list(GROUP), [])
    assert lines == []  # nothing is wrong with this router


@pytest.mark.usefixtures("_no_pauses")
async def test_what_is_not_foreseen_is_logged_and_raised(written: Written) -> None:
    with structlog.testing.capture_logs() as lines:
        async with refusing(ValueError("not foreseen"), written) as journal:
            with pytest.raises(ValueError, match="not foreseen"):
                journal.add(50)
    assert lines == [
        {
            "event": "the journal cannot be written",
            "session_id": "p.one",
            "log_level": "error",
            "exc_info": True,
        }
    ]
    assert journal.pending == list(GROUP)


async def test_flush_writes_what_is_pending_and_nothing_else(written: Written) -> None:
    store = ScriptedStore()
    journal = journal_on(store, written)
    await journal.flush()
    assert store.writes == []
    add_all(journal, range(40))
    await journal.flush()
    assert store.writes == [(7, tuple(range(40)))]
    assert (journal.length, journal.pending) == (47, [])


@pytest.mark.parametrize(
    ("fault", "raised"), [(StoreUnavailable("Redis does not answer"), StoreUnavailable), ("gone", Taken)]
)
async def test_what_a_flush_cannot_write_stays_pending(written: Written, fault: Fault, raised: type[Exception]) -> None:
    store = ScriptedStore(fault)
    journal = journal_on(store, written)
    add_all(journal, [50, 51])
    with pytest.raises(raised):
        await journal.flush()
    assert (journal.length, journal.pending) == (7, [50, 51])
    await journal.flush()
    assert store.writes == [(7, (50, 51)), (7, (50, 51))]
    assert (journal.length, journal.pending) == (9, [])


async def test_tokens_are_written_under_the_lease_that_the_session_has_now(written: Written) -> None:
    store = ScriptedStore("extended", "gone")
    journal = journal_on(store, written)
    await journal.write([1, 2, 3])
    journal.record = replace(RECORD, epoch=Epoch(2))
    with pytest.raises(Taken):
        await journal.write([4])
    await journal.write([5, 6])
    assert store.writes == [(7, (1, 2, 3)), (10, (4,)), (10, (5, 6))]
    assert [record.epoch for record in store.records] == [1, 2, 2]
    assert journal.length == 12


def test_tokens_are_packed_into_four_bytes_each() -> None:
    assert pack([]) == b""
    assert pack([1, 0x01020304, 2**32 - 1]) == b"\x01\x00\x00\x00\x04\x03\x02\x01\xff\xff\xff\xff"


@given(st.lists(st.integers(0, 2**32 - 1)), st.integers(0, 20))
def test_packed_tokens_are_cut_anywhere_and_unpacked(token_ids: list[int], start: int) -> None:
    packed = pack(token_ids)
    assert len(packed) == BYTES_PER_TOKEN * len(token_ids)
    assert unpack(packed) == token_ids
    assert unpack(packed[BYTES_PER_TOKEN * start :]) == token_ids[start:]


def test_only_a_call_that_nobody_read_is_no_broken_one() -> None:
    operation = Operation(RECORD, Intent("generate", {}), DetachedTasks())
    assert is_broken(operation, OperationStopped("it has been taken over"))
    assert not is_broken(operation, OperationStopped("nobody reads", metadata={"cause": "unread"}))
