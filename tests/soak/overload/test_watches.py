"""The watch of the line, told what Redis' MONITOR said when waiters of a stopped router lapsed."""

import pytest

from kakeya_router.store.sessions.session_changes import INTERRUPTED
from tests.soak.overload.watches import LineWatch
from tests.soak.report import Tally

_QUEUE, _USAGE = '"kakeya:{random}:queue"', '"kakeya:{random}:usage"'
_FIRST, _SECOND = '"other|1795627864892691|3aed0d4264679466"', '"other|1795627864960293|d4740eabfa6c56d9"'
_MODEST = '"modest|1795627864598539|217e33cfe67c111a"'
_NEXT = '"other|1795627865569961|4ce550fe4a94b41a"'
_FIFTH = '"other|1795627866000000|5ce550fe4a94b41b"'
_QUEUED = [f'"ZADD" {_QUEUE} "0" {member}' for member in (_MODEST, _FIRST, _SECOND, _NEXT)]
_OTHER_HOLDS = f'"HINCRBY" {_USAGE} "other|bytes" "116736"'
_LAPSED = f'"ZREM" {_QUEUE} {_MODEST} {_FIRST} {_SECOND}'
_ADMITTED = [
    '"HSET" "kakeya:{random}:session:random.V_kkmhySRawi4E0fMoqjRg" "session_id" "random.V_kkmhySRawi4E0fMoqjRg" '
    '"pool" "random" "state" "opening" "tenant" "other"',
    f'"HINCRBY" {_USAGE} "other|bytes" "116736"',
    f'"ZREM" {_QUEUE} {_NEXT}',
]


def watch_of(*scripts: list[str]) -> tuple[LineWatch, list[str]]:
    """A watch that has heard these scripts' commands, and what it found wrong."""
    tally = Tally()
    watch = LineWatch("redis://127.0.0.1:1/0", "random", tally, queue_length=4)
    for script in [*scripts, []]:
        watch.hear(b'+1795627868.130096 [0 127.0.0.1:46278] "EVALSHA" "e793b21b" "2" "arguments"\r\n')
        for command in script:
            watch.hear(b"+1795627868.130472 [0 lua] " + command.encode() + b"\r\n")
    return watch, tally.violations


def test_waiters_that_lapse_together_are_overtaken_by_nobody() -> None:
    watch, violations = watch_of(_QUEUED, [_OTHER_HOLDS], [_LAPSED], _ADMITTED)
    assert (watch.num_admitted, watch.num_waited) == (1, 1)
    assert violations == []


def test_who_comes_before_one_in_the_line_is_told() -> None:
    _, violations = watch_of(_QUEUED, [_OTHER_HOLDS], _ADMITTED)
    overtaken = f"[{_NEXT}] of 'other' before {_FIRST}"
    unjust = f"'other' at (116736, '1795627865569961') before {_MODEST}"
    assert violations == [overtaken.replace('"', "'"), unjust.replace('"', "'")]


@pytest.mark.parametrize(
    ("repair", "is_unjust"),
    [
        (f'"HSET" {_USAGE} "modest|bytes" "350208" "modest|sessions" "3"', False),
        (f'"HSET" {_USAGE} "other|bytes" "350208"', True),
        (f'"HDEL" {_USAGE} "other|sessions" "other|bytes"', False),
    ],
)
def test_what_a_tenant_holds_may_be_repaired(repair: str, is_unjust: bool) -> None:
    modest_holds_less = [f'"HINCRBY" {_USAGE} "modest|bytes" "58368"', _OTHER_HOLDS]
    late = _MODEST.replace("1795627864598539", "1795627869000000")
    queued = [f'"ZADD" {_QUEUE} "0" {member}' for member in (late, _NEXT)]
    assert bool(watch_of(queued, modest_holds_less, [repair], _ADMITTED)[1]) is is_unjust


def test_a_newcomer_in_a_full_line_is_told_and_not_one_that_comes_back() -> None:
    comes_back = [f'"ZREM" {_QUEUE} {_FIRST}', f'"ZADD" {_QUEUE} "0" {_FIFTH}', f'"ZADD" {_QUEUE} "0" {_FIRST}']
    assert watch_of(_QUEUED, comes_back)[1] == []
    _, violations = watch_of(_QUEUED, [f'"ZADD" {_QUEUE} "0" {_FIFTH}'])
    assert violations == [f"{_FIFTH} came into a line of 4".replace('"', "'")]


def test_one_that_has_lost_its_worker_finds_room() -> None:
    lost = _FIFTH.replace("other", INTERRUPTED)
    assert watch_of(_QUEUED, [f'"ZADD" {_QUEUE} "0" {lost}'])[1] == []
