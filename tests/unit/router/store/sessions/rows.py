"""Rows of the table of scripts: sessions that are made, branched off from, shared and closed."""
# ruff: noqa: F403, F405  # all the words of the table

from typing import Any

from kakeya_router.store.session_record import LaneState
from kakeya_router.store.sessions.session_changes import Limits
from kakeya_router.store.sessions.stored_snapshots import Snapshots, StoredSnapshot, parse, text
from tests.unit.router.admission_stores import KEYS
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *

# fmt: off
NEW = having(claim="create", kind="create", router="router", lease_until_ms=LANE_LEASE)
OPENS = having(state="opening", sink=-1, window=-1, idle_since_ms=NOW)
RESERVED = to(session=OPENS, op=NEW, expiry=LANE_LEASE, ledger=(100, 0, 1), sessions=["p.one"],
              usage={"|sessions": 1, "|bytes": 100})
RESERVED_TWO = to(session_two=OPENS, op_two=NEW, expiry_two=LANE_LEASE, ledger=(200, 0, 2), sessions=["p.one", "p.two"],
                  usage={"|sessions": 2, "|bytes": 200})
OPENED = to(USED, state="open", sink=1, window=4, op=GONE)
TAKEN = to(state="closing", op_claim="close", op_kind="close", op_lease_until_ms=LANE_LEASE, expiry=LANE_LEASE)
RENEWED = to(op_lease_until_ms=LANE_LEASE, expiry=LANE_LEASE)
INTERRUPTED = to(TAKEN, op_before=GONE, op_expires_at=GONE, op_op_id=GONE, op_parameters=GONE)
CLAIM = having(claim="close", kind="close", router="router", lease_until_ms=LANE_LEASE)
CLAIMED = to(state="closing", op=CLAIM, expiry=LANE_LEASE, idle=GONE)
DELETED = to(session=GONE, op=GONE, expiry=GONE, sessions=GONE, usage=GONE, ledger=(0, 0, 0))

TWO_OPENING = OPENING + reserve(of=TWO)
SPENT = OPEN + begin(A, tokens_per_minute=1) + end(A, 3, 0, [1, 2, 3])
SOURCE = source(2, 7, *LISTED)
ZERO = (StoredSnapshot("p/p.zero-1-0-0123abcd-3.safetensors", 0, 3, 20),)
NEEDED = f"2|0||{text(LISTED)}"
"""What that has, as `Past.needed` says it."""
FORKED = SOURCE + reserve(of=TWO, source=SESSION, length=7)
FORK_OPENED = {f"{name}_two": value for name, value in OPENED.items()} | to(
    history_length_two=7, kv_live_bytes_two=50, ledger=(200, 120, 2))
FORK_DELETED = to(session_two=GONE, op_two=GONE, expiry_two=GONE, journal_two=GONE, heirs=GONE)
open_fork = mark_open(of=TWO, lane=LaneState(7, 50), source=SESSION)
fork = reserve(of=TWO, source=SESSION, length=5, needed=NEEDED)


def any_fork(length: int) -> Steps:
    return reserve(of=TWO, source=SESSION, length=length)


def inherits(source_length: int, length: int, start: int, inherited: Snapshots = (), store: str = "") -> dict[str, Any]:
    """A fork at a length, whose journal begins there, with these snapshots in that store."""
    snapshots = Says(f"{inherited}", lambda value, at: parse(value) == inherited)
    made = having(state="opening", journal_start=start, journal_length=length, history_length=0, snapshots="",
                  inherited=snapshots, inherited_store=store)
    tokens = to(journal_two=[*range(start + 1, length + 1)]) if start < length else {}
    heirs = to(heirs=sorted(f"{each.name}|p.two" for each in inherited)) if inherited else {}
    return to(RESERVED_TWO, tokens, heirs, session_two=made, ledger=(200, 10 * source_length, 2))


def half_forked(store: str) -> Steps:
    """A source that has inherited a snapshot itself, and has one of its own in a store."""
    inherited = write(inherited=text(ZERO), inherited_store="store")
    own = put(LISTED[2:], snapshot_store=store, inherited=ZERO)
    return (source(2, 7) + inherited + own).called(f"half_forked({store})")


ROWS: Rows = {
    "reserve_session": [
        Row(NOTHING, reserve(request_id="r"), "reserved", to(RESERVED, request="p.one")),
        Row(OPENING, reserve(of=TWO), "reserved", RESERVED_TWO),
        Row((beat(leaving=True) + beat(), drain() + drain(False)), reserve(), "reserved", RESERVED),
        Row((drain(), beat(leaving=True), drain() + beat(leaving=True) + beat()), reserve(), "full"),
        Row(tunnelled(), reserve(), "full"),
        Row(tunnelled() + beat(tunnels="r:1"), reserve(), "reserved", RESERVED),
        Row(TWO_OPENING, reserve(of=THREE, request_id="r"), "full"),
        Row(TWO_OPENING, reserve(of=THREE, incarnation="old"), "gone"),
        Row(reserve(request_id="r"), reserve(of=TWO, request_id="r"), "duplicate"),
        Row(OPENING, reserve(of=TWO, limits=Limits(1)), "quota", gives=["sessions", "1"]),
        Row(OPENING, reserve(of=TWO, limits=Limits(0, 199)), "quota", gives=["reserved_bytes", "199"]),
        Row(reserve(key_id="k"), reserve(of=TWO, key_id="k", limits=Limits(0, 0, 1)), "quota",
            gives=["key_sessions", "1"]),
        Row(SPENT, reserve(of=TWO, tokens_per_minute=1), "quota", gives=["tokens_per_minute", "1", ANY]),
        # Somebody waits.
        Row(enter("x"), reserve(), "wait"),
        Row(reserve(tenant="a") + enter("x", "b"), reserve(of=TWO, tenant="a"), "wait"),
        Row(reserve(tenant="a") + enter("x", "a"), reserve(of=TWO, tenant="b"), "reserved",  # which holds less
            to(RESERVED_TWO, usage={"a|sessions": 1, "a|bytes": 100, "b|sessions": 1, "b|bytes": 100})),
        Row(enter("x"), reserve(waiter_id="x"), "reserved", to(RESERVED, queue=GONE, waiters=GONE)),
        Row(reserve(request_id="r") + enter("x"), reserve(of=TWO, request_id="r", waiter_id="x"), "duplicate",
            to(queue=GONE, waiters=GONE)),
        # A fork, which needs what its source had.
        Row(SOURCE, fork, "reserved", inherits(7, 5, 2, BOTH, "store")),
        Row((SOURCE + write(snapshots=""), SOURCE + write(inherited=text(LISTED))), fork, "changed"),
        Row((SOURCE + write(num_rewinds=1), SOURCE + write(journal_start=3)), fork, "changed"),
        Row((SOURCE + remove(KEYS.session(ONE)), SOURCE + remove(KEYS.journal(ONE))), any_fork(5), "changed"),
        # It has what its source's journal still holds, and the snapshots up to where it begins, unless that lies before
        # the journal; of two stores only what is in the one of the newest.
        *(Row(source(start, length), any_fork(5), "reserved", inherits(length, 5, min(start, 5)))
          for start, length in ((0, 5), (2, 5), (0, 7), (2, 7), (4, 7), (5, 7), (6, 7))),
        Row(source(2, 7, *LISTED), any_fork(4), "reserved", inherits(7, 4, 2, FIRST, "store")),
        Row(source(5, 7, *LISTED), any_fork(5), "reserved", inherits(7, 5, 5, BOTH, "store")),
        Row(source(5, 7, *LISTED), any_fork(7), "reserved", inherits(7, 7, 5, LISTED, "store")),
        Row(source(3, 7, *LISTED), any_fork(4), "reserved", inherits(7, 4, 3)),
        Row(half_forked("store"), any_fork(7), "reserved", inherits(7, 7, 2, ZERO + LISTED[2:], "store")),
        Row(half_forked("another"), any_fork(7), "reserved", inherits(7, 7, 2, LISTED[2:], "another")),
        Row(half_forked("another"), any_fork(5), "reserved", inherits(7, 5, 2, ZERO, "store")),
    ],
    "mark_open": [
        Row(OPENING, mark_open(), "open", OPENED),
        Row(OPENING, mark_open(lane=LaneState(9, 50, "0-1,5-9")), "open",
            to(OPENED, history_length=9, kv_live_bytes=50, retained="0-1,5-9", ledger=(100, 50, 1))),
        Row(OPENING, mark_open(B), "gone"),
        Row((OPEN, OPENING + drop()), mark_open(), "gone"),
        Row(FORKED, open_fork, "open", FORK_OPENED),
        Row((FORKED + close(), FORKED + close() + delete()), open_fork, "gone"),
        Row(FORKED + begin(A, REWIND) + rewind(A, 2) + extend(A, 2, [7, 7, 7]), open_fork, "gone"),
    ],
    "renew_opening": [
        Row(OPENING, renew_opening(B), "gone"),
        Row(reserve(by=HASTY), renew_opening(), "renewed", RENEWED),
    ],
    "share_session": [
        Row(OPENING, share(), "shared"),
        Row((OPEN, SWEPT, FAILED), share(), "shared", to(shared=True)),
        Row((NOTHING, CLOSING, LOST), share(), "missing"),
    ],
    "use_source": [
        Row((NOTHING, OPENING, CLOSING), (use(), use(3, is_reachable=True)), "missing"),
        Row(FAILED, use(), "failed"),
        Row(OPEN, use(), "empty"),
        Row(ran(9), (use(), use(9), use(3, is_reachable=True)), "present", USED),
        Row(ran(9), (use(8), use(8, is_reachable=False)), "elsewhere"),
        Row(ran(9) + begin(A), use(), "busy"),
        Row(ran(9) + lapsed(A), use(by=PATIENT), "busy"),
        Row((ran(9) + lapsed(A), ran(9) + drop(), OPEN + drop()), use(), "left"),
        Row(BEHIND, (use(), use(2), use(3)), "left"),
        Row(BEHIND + report(3), use(), "present", USED),
        Row(ran(9) + begin(A), use(3, is_reachable=True), "present"),
        Row(SWEPT, use(3, is_reachable=True), "present", to(idle_since_ms=NOW)),
        Row(SWEPT, use(3, is_reachable=True, **STALE), "moved"),
        Row((FORGETFUL + drop(), LOST), (use(), use(2, is_reachable=True), use(2, is_reachable=False)), "lost"),
    ],
    "begin_close": [
        Row(DUE, close(cause=EXPIRY), "missing", to(expiry=GONE)),
        Row((OPENING, CLOSING), close(), "missing"),
        Row(OPEN, (close(), close(cause=ABANDON), close(cause=IDLE)), "claimed", CLAIMED),
        Row(SWEPT, close(), "claimed", to(state="closing", op=CLAIM, expiry=LANE_LEASE)),
        Row(OPEN + begin(A, tokens_per_minute=1), close(), "claimed", INTERRUPTED),
        Row(reserve(request_id="r"), close(cause=ABANDON), "claimed", to(TAKEN, request=GONE)),
        Row(OPEN + share(), close(cause=ABANDON), "kept"),
        Row((OPEN, OPEN + begin(A) + DUE, OPEN + remove(KEYS.expiry), SWEPT), close(cause=EXPIRY), "kept"),
        Row(reserve(by=HASTY) + renew_opening(), close(cause=EXPIRY), "kept"),
        Row(OPEN + DUE, close(cause=EXPIRY), "claimed", CLAIMED),
        Row(OPEN + lapsed(A) + DUE, close(cause=EXPIRY), "claimed", INTERRUPTED),
        Row(OPEN + close(by=HASTY), close(cause=EXPIRY), "claimed", RENEWED),
        Row(OPEN + begin(A), close(cause=IDLE), "kept"),
        Row(OPEN, (close(cause=IDLE, idle_ms=3_600_000), close(cause=IDLE, wanted_by="other")), "kept"),
    ],
    "delete_session": [
        Row((ran(3), ran(3) + close() + delete()), delete(), "gone"),
        Row(ran(3) + close(), delete(B), "gone"),
        Row(ran(3) + close(), delete(), "deleted", to(DELETED, journal=GONE)),
        Row(SWEPT + close(), delete(), "deleted", to(session=GONE, op=GONE, expiry=GONE, journal=GONE)),
        Row(EPHEMERAL + close(), delete(history_length=3), "deleted", to(DELETED, closed="3 a")),
        Row(OPEN + begin(A, tokens_per_minute=60) + close(), delete(history_length=3), "deleted", to(DELETED, spent=3)),
        Row(FORKED + close(cause=ABANDON, of=TWO), delete(of=TWO), "deleted",
            to(FORK_DELETED, sessions=["p.one"], ledger=(100, 70, 1), usage=RESERVED["usage"])),
        Row(FORKED + close() + delete() + close(cause=ABANDON, of=TWO), delete(of=TWO), "deleted",
            to(FORK_DELETED, sessions=GONE, ledger=(0, 0, 0), usage=GONE, snapshot_bytes=GONE)),
    ],
}
