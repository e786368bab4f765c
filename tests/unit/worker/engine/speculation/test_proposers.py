"""Proposers behind their guard: found, asked, and given up where they fail or hang."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from kakeya_shared import plugins
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.speculation.drafter import Drafter
from kakeya_worker.engine.speculation.proposers import GROUP, MUCH_TOLD, Proposers, Wish

GEOMETRY, VOCAB_SIZE = LaneGeometry(sink=4, window=60, chunk=32), 1000
PATIENT = 30.0


class Told:
    """Remembers what it was told, and drafts what a test says."""

    max_tokens = 8
    memory_bytes = 64
    is_immediate = False

    def __init__(self, drafts: Any = (1, 2, 3)) -> None:
        self.drafts = drafts
        self.told: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()

    def restart(self, token_ids: Sequence[int]) -> None:
        self._note("restart", token_ids)

    def extend(self, token_ids: Sequence[int]) -> None:
        self._note("extend", token_ids)

    def propose(self, token_id: int, num_tokens: int) -> Any:
        self._note("propose", [token_id, num_tokens])
        if isinstance(self.drafts, Exception):
            raise self.drafts
        return self.drafts

    def _note(self, what: str, token_ids: Sequence[int]) -> None:
        self.told.append((what, list(token_ids)))
        self.threads.add(threading.get_ident())


def made(told: Any, **settings: Any) -> Proposers:
    return Proposers("told", lambda _: lambda geometry, vocab_size: told, **{"late_seconds": PATIENT, **settings})


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def proposers(told: Told) -> Iterator[Proposers]:
    proposers = made(told)
    yield proposers
    proposers.close(PATIENT)


def drafter_of(proposers: Proposers, token_ids: Sequence[int] = (5, 6)) -> Drafter:
    drafter = proposers.drafter(GEOMETRY, VOCAB_SIZE, token_ids)
    assert drafter is not None
    return drafter


def test_built_ins_come_in_by_the_door_of_all() -> None:
    assert {"none", "ngram"} <= set(plugins.names(GROUP))
    assert Proposers().drafter(GEOMETRY, VOCAB_SIZE, ()) is None
    assert drafter_of(Proposers("ngram")).memory_bytes == 1 << 20


def test_one_that_is_not_there_is_an_error_that_says_how_to_get_it() -> None:
    with pytest.raises(plugins.PluginError, match=r"no kakeya\.proposer plugin is named 'medusa' \(installed: .*ngram"):
        Proposers("medusa")
    with pytest.raises(plugins.PluginError, match="pip install kakeya-worker"):
        Proposers("medusa")


def test_it_hears_everything_in_order_on_a_thread_of_its_own(proposers: Proposers, told: Told) -> None:
    drafter = drafter_of(proposers)
    proposers.extend(drafter, (7, 8))
    assert proposers.propose([Wish(drafter, 9, 4)]) == [(1, 2, 3)]
    proposers.restart(drafter, (1,))
    assert proposers.propose([Wish(drafter, 2, 2), Wish(drafter, 2, 0)]) == [(1, 2), ()]
    assert told.told[:4] == [("restart", [5, 6, 7, 8]), ("propose", [9, 4]), ("restart", [1]), ("propose", [2, 2])]
    proposers.extend(drafter, (3,))
    proposers.extend(drafter, (4, 5))
    proposers.propose([Wish(drafter, 9, 4)])
    assert told.told[-2:] == [("extend", [3, 4, 5]), ("propose", [9, 4])]
    assert told.threads.isdisjoint({threading.get_ident()})
    assert len(told.threads) == 1


def test_what_is_taken_back_before_it_was_told_is_never_heard(proposers: Proposers, told: Told) -> None:
    drafter = drafter_of(proposers)
    proposers.extend(drafter, (7, 8))
    proposers.restart(drafter, (5,))
    proposers.extend(drafter, (9,))
    proposers.propose([Wish(drafter, 1, 1)])
    assert told.told[0] == ("restart", [5, 9])


def test_much_is_told_at_once(proposers: Proposers, told: Told) -> None:
    drafter = drafter_of(proposers)
    proposers.extend(drafter, range(MUCH_TOLD - 3))
    proposers._plugins._thread.submit(lambda: None).result(PATIENT)
    assert told.told == []
    proposers.extend(drafter, (1,))
    proposers._plugins._thread.submit(lambda: None).result(PATIENT)
    assert [(what, len(token_ids)) for what, token_ids in told.told] == [("restart", MUCH_TOLD)]


def test_one_that_drafts_nothing_is_left_alone() -> None:
    told = Told()
    told.max_tokens = 0
    proposers = made(told)
    assert proposers.drafter(GEOMETRY, VOCAB_SIZE, (5, 6)) is None
    assert proposers.propose([]) == []
    proposers.close(PATIENT)
    assert told.told == []


@pytest.mark.parametrize(
    ("drafts", "found"),
    [
        ([3, 999, 1000, 4], (3, 999)),
        ([-1, 4], ()),
        (range(100), (0, 1, 2, 3)),
        (iter(int, 1), (0, 0, 0, 0)),  # for ever
        ([], ()),
    ],
)
def test_what_is_no_token_ends_the_drafts(proposers: Proposers, told: Told, drafts: Any, found: tuple[int]) -> None:
    told.drafts = drafts
    assert proposers.propose([Wish(drafter_of(proposers), 9, 4)]) == [found]


@pytest.mark.parametrize("drafts", [None, 5, ["a"], [1.5], RuntimeError("broken")])
def test_one_that_fails_drafts_no_more_for_its_session(proposers: Proposers, told: Told, drafts: Any) -> None:
    failing, other = drafter_of(proposers), drafter_of(proposers)
    told.drafts = drafts
    with capture_logs() as logs:
        assert proposers.propose([Wish(failing, 9, 4)]) == [()]
    assert [(line["log_level"], line["proposer"]) for line in logs] == [("error", "told")]
    told.drafts = [1]
    assert proposers.propose([Wish(failing, 9, 4), Wish(other, 9, 4)]) == [(), (1,)]
    assert (failing.max_tokens, failing.memory_bytes, other.max_tokens) == (0, 0, 8)
    proposers.extend(failing, (1,))
    failing.extend((1,))
    failing.restart((1,))


@pytest.mark.parametrize("method", ["restart", "extend"])
def test_one_that_fails_to_listen_drafts_no_more(
    proposers: Proposers, told: Told, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = drafter_of(proposers)
    proposers.propose([Wish(drafter, 9, 4)])
    monkeypatch.delattr(Told, method)
    getattr(proposers, method)(drafter, (7,))
    assert proposers.propose([Wish(drafter, 9, 4)]) == [()]


def test_none_drafts_nothing() -> None:
    none = plugins.load(GROUP, "none")(GEOMETRY, VOCAB_SIZE)
    none.restart([1, 1, 1, 1])
    assert (none.max_tokens, none.propose(1, 8)) == (0, ())


def test_a_session_opens_without_one_that_cannot_be_made() -> None:
    def fail(geometry: LaneGeometry, vocab_size: int) -> Told:
        raise MemoryError

    proposers = Proposers("told", lambda _: fail)
    with capture_logs() as logs:
        assert proposers.drafter(GEOMETRY, VOCAB_SIZE, ()) is None
    assert [line["log_level"] for line in logs] == ["error"]


class Hanging(Told):
    """Comes back when a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.let_go = threading.Event(), threading.Event()

    def propose(self, token_id: int, num_tokens: int) -> Any:
        self.is_asked.set()
        self.let_go.wait(PATIENT)
        return super().propose(token_id, num_tokens)


def test_one_that_is_immediate_is_used_on_the_engine_s_thread(proposers: Proposers, told: Told) -> None:
    told.is_immediate = True
    drafter = drafter_of(proposers)
    proposers.extend(drafter, (7, 8))
    assert proposers.propose([Wish(drafter, 9, 2)]) == [(1, 2)]
    proposers.extend(drafter, range(MUCH_TOLD))
    assert [(what, len(token_ids)) for what, token_ids in told.told] == [
        ("restart", 4),
        ("propose", 2),
        ("extend", MUCH_TOLD),
    ]
    assert told.threads == {threading.get_ident()}
    slow = Drafter("slow", Told(), VOCAB_SIZE)
    assert proposers.propose([Wish(slow, 1, 1), Wish(drafter, 1, 2), Wish(slow, 1, 2)]) == [(1,), (1, 2), (1, 2)]


def test_what_is_late_is_not_waited_for_and_not_used() -> None:
    hanging = Hanging()
    proposers = made(hanging, late_seconds=0.001)
    drafter = drafter_of(proposers)
    wish = Wish(drafter, 9, 4)
    assert proposers.propose([wish]) == [()]
    assert hanging.is_asked.wait(PATIENT)
    proposers.extend(drafter, (9,))
    assert proposers.propose([wish]) == [()]
    assert [what for what, _ in hanging.told] == ["restart"], "it is not asked again meanwhile"
    hanging.let_go.set()
    assert proposers._plugins._asked is not None
    proposers._plugins._asked.result(PATIENT)
    proposers._late_seconds = PATIENT
    assert proposers.propose([wish]) == [(1, 2, 3)]
    assert [what for what, _ in hanging.told] == ["restart", "propose", "extend", "propose"]
    proposers.close(PATIENT)


def test_one_that_hangs_is_given_up_with_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = Hanging()
    proposers = made(hanging, late_seconds=0.001, hung_seconds=60.0)
    drafter = drafter_of(proposers)
    wish = Wish(drafter, 9, 4)
    now = 1000.0
    monkeypatch.setattr("kakeya_worker.engine.speculation.aside.time.monotonic", lambda: now)
    assert proposers.propose([wish]) == [()]
    assert hanging.is_asked.wait(PATIENT)
    now += 59.0
    assert proposers.propose([wish]) == [()]
    assert not proposers._plugins._is_given_up
    now += 2.0
    with capture_logs() as logs:
        assert proposers.propose([wish]) == proposers.propose([wish]) == [()]
    assert [line["log_level"] for line in logs] == ["error"]
    monkeypatch.undo()
    hanging.let_go.set()
    proposers.extend(drafter, (9,))
    proposers.close(PATIENT)
    assert [what for what, _ in hanging.told] == ["restart", "propose"], "it is told nothing any more"
