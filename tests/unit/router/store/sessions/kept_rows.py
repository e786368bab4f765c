"""Rows of the table of scripts: sessions that are parked by themselves, make room, or are one of a few."""
# ruff: noqa: F403, F405  # all the words of the table

from typing import Any

from kakeya_router.store.session_record import LaneState
from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from tests.unit.router.admission_stores import KEYS
from tests.unit.router.store.lanes.rows import ON_W
from tests.unit.router.store.operations.rows import APPENDED_NOW, AS_BEFORE, ENDED, begun
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *
from tests.unit.router.store.sessions.rows import CLAIM, CLAIMED, OPENED, RESERVED, RESERVED_TWO, inherits
from tests.unit.router.store.sessions.tag_rows import tag

IN_30S = in_ms(30_000)
BEFORE_ALL = 10**13
SOONER = Says("before all others", lambda value, at: at.began <= float(value) + BEFORE_ALL <= at.ended)
"""The rank of one that costs less to prefill anew than to park."""


def makes_room(rank: Any) -> dict[str, Any]:
    return to(to_park=IN_30S, spare=rank, spare_of=["p.one"])


# fmt: off
FREE = (reserve(disposable=True, park_after_ms=30_000, cheap_tokens=5) + mark_open()).called("free")
"""A disposable session to be parked after 30 s, of which five tokens cost less to prefill anew than to park."""
SHORT, LONG = (FREE + run(5)).called("short"), (FREE + run(6)).called("long")
TO_PARK_ALONE = reserve(park_after_ms=30_000) + mark_open()
NOT_CHEAP = reserve(disposable=True) + mark_open()
NOT_IDLE = to(idle=GONE, to_park=GONE, spare=GONE, spare_of=GONE)
HEAD = reserve(disposable=True, head=True) + mark_open() + run(3, APPEND)
DIGEST = f"{extended_digest(EMPTY_HISTORY, [1, 2, 3]):016x}"
any_fork = reserve(of=TWO, source=SESSION, length=3, disposable=True)
CHILD = (ran(3) + any_fork + mark_open(of=TWO, lane=LaneState(3), source=SESSION)).called("child")
PARKED_CHILD = (CHILD + park(of=TWO)).called("parked_child")
ONE_ALONE = to(sessions=["p.one"], usage={"|sessions": 1, "|bytes": 100}, ledger=(100, 30, 1))
CHILD_GONE = to(ONE_ALONE, reserved_bytes_two=0, op_two=GONE, journal_two=GONE, groups=GONE)
LEFT_BY_ANOTHER = PARKED_CHILD + redis("HSET", KEYS.operation(TWO), "claim", "close")
"""An older router has claimed it for good."""

WRITTEN = (LONG + put(BOTH) + park()).called("written")
"""Parked, with snapshots of 40 bytes."""
PARKED_MORE = redis("ZADD", KEYS.parked, 1, "p.more")
PARKED_GOES = to(state="closing", op=CLAIM, expiry=LANE_LEASE, parked=GONE)

KEPT_ROWS: Rows = {
    "mark_open": [
        Row(reserve(disposable=True, park_after_ms=30_000), mark_open(), "open", to(OPENED, to_park=IN_30S)),
    ],
    "begin_operation": [
        Row(SHORT, begin(A), "begun", to(begun("a", 5), NOT_IDLE)),
    ],
    "end_operation": [
        Row(FREE + begin(A), end(A, 5, 0, range(1, 6)), "ended",
            to(ENDED, lane(5), journal(5), makes_room(SOONER), boundaries=5)),
        Row(FREE + begin(A), end(A, 6, 0, range(1, 7)), "ended",
            to(ENDED, lane(6), journal(6), makes_room(NOW), boundaries=6)),
        Row(FREE + run(1) + begin(A), end(A, 2, 1, [2]), "ended",
            to(ENDED, lane(2), journal(2), makes_room(NOW), boundaries="1,2")),
        # No answer of it has ended yet.
        Row(FREE + begin(A, APPEND), end(A, 3, 0, [1, 2, 3]), "ended",
            to(ENDED, lane(3), journal(3), APPENDED_NOW, to_park=IN_30S)),
        Row(TO_PARK_ALONE + begin(A), end(A, 1, 0, [1]), "ended",
            to(ENDED, lane(1), journal(1), boundaries=1, to_park=IN_30S)),
        Row(NOT_CHEAP + begin(A), end(A, 1, 0, [1]), "ended",
            to(ENDED, lane(1), journal(1), boundaries=1, spare=NOW, spare_of=["p.one"])),
    ],
    "release_operation": [
        Row(SHORT + begin(A), release(A), "released",
            to(AS_BEFORE, operation_id="run", operation_start=0, to_park=same_as("idle_since_ms", 30_000),
               spare=same_as("idle_since_ms", -BEFORE_ALL), spare_of=["p.one"])),
    ],
    "use_source": [
        Row(LONG, (use(), use(3, is_reachable=True)), "present", to(USED, to_park=IN_30S, spare=NOW)),
        Row(LONG + park(), use(3, is_reachable=True), "present", to(idle_since_ms=NOW, parked=NOW, expiry=IN_60S)),
    ],
    "park_session": [
        Row(LONG, (park(), park(idle_ms=0, wanted_by="other")), "parked",
            to(PARKED, BACK, EMPTY, NOT_IDLE, idle=GONE, parked=same_as("idle_since_ms"))),
        Row(LONG, park(idle_ms=3_600_000), "kept"),
        Row(FREE, park(idle_ms=0, wanted_by="other"), "kept"),
    ],
    "resume_session": [
        Row(LONG + park() + begin(A), resume(A, WORKER), "resumed", to(ON_W, parked=GONE)),
    ],
    "lose_session": [
        Row(LONG + begin(A), lose(A), "parked",
            to(PARKED, BACK, EMPTY, op=GONE, idle_since_ms=NOW, expiry=IN_60S, parked=NOW)),
        Row(CHILD + begin(A, of=TWO), lose(A, of=TWO, for_good=True), "lost",
            to(CHILD_GONE, state_two="lost", expiry_two=in_ms(RETENTION.lost_ms))),
    ],
    "fail_session": [
        Row(CHILD + begin(A, of=TWO), fail(A, of=TWO), "failed",
            to(CHILD_GONE, state_two="failed", inv1_violations_two=1, idle_since_ms_two=NOW, expiry_two=IN_60S)),
    ],
    "reserve_session": [
        Row(NOTHING, reserve(disposable=True, head=True, tenant="a"), "reserved",
            to(RESERVED, session=having(group="head"), groups=["a|head|p.one"],
               usage={"a|sessions": 1, "a|bytes": 100})),
        Row(ran(3), any_fork, "reserved",
            to(RESERVED_TWO, session_two=having(group=f"3.{DIGEST}"), journal_two=[1, 2, 3], ledger=(200, 30, 2),
               groups=[f"|3.{DIGEST}|p.two"])),
        Row(ran(4), any_fork, "reserved",  # it is the same place
            to(RESERVED_TWO, session_two=having(group=f"3.{DIGEST}"), journal_two=[1, 2, 3], ledger=(200, 40, 2),
               groups=[f"|3.{DIGEST}|p.two"])),
        Row(HEAD + tag("head 3", "aa", op_id=""), any_fork, "reserved",  # as many as come
            to(RESERVED_TWO, session_two=having(group=""), journal_two=[1, 2, 3], ledger=(200, 30, 2))),
        # Which place it is, is not known.
        Row(source(2, 7) + write(journal_digests=""), any_fork, "reserved", inherits(7, 3, 2)),
    ],
    "begin_close": [
        Row(SHORT, close(cause=IDLE, wanted_by="other"), "claimed", to(CLAIMED, NOT_IDLE)),
        Row(LONG + park(), close(), "claimed", to(state="closing", op=CLAIM, expiry=LANE_LEASE, parked=GONE)),
        Row(PARKED_CHILD, close(cause=SURPLUS, limit=0, of=TWO), "claimed",
            to(state_two="closing", op_two=CLAIM, expiry_two=LANE_LEASE, parked_two=GONE, groups=GONE)),
        Row(PARKED_CHILD, close(cause=SURPLUS, limit=1, of=TWO), "kept"),
        Row(PARKED_CHILD + begin(A, of=TWO), close(cause=SURPLUS, limit=0, of=TWO), "kept"),
        Row(CHILD, close(cause=SURPLUS, limit=0, of=TWO), "kept"),  # its answer is to come yet
        Row(SHORT, close(cause=SURPLUS, limit=0), "kept"),  # of no group
        # The pool keeps too much.
        Row(WRITTEN, (close(cause=BOUND, max_bytes=39), close(cause=BOUND, max_bytes=1)), "claimed", PARKED_GOES),
        Row(FREE + run(1) + park() + PARKED_MORE, close(cause=BOUND, max_parked=1), "claimed", PARKED_GOES),
        Row(WRITTEN, (close(cause=BOUND), close(cause=BOUND, max_parked=1, max_bytes=40)), "kept"),
        Row((WRITTEN + begin(A), LONG), close(cause=BOUND, max_bytes=1), "kept"),
    ],
    "delete_session": [
        Row(LEFT_BY_ANOTHER, delete(of=TWO), "deleted",
            to(session_two=GONE, op_two=GONE, journal_two=GONE, expiry_two=GONE, parked_two=GONE, groups=GONE)),
    ],
}
