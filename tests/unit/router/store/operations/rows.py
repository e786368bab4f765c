"""Rows of the table of scripts: operations, from their begin to their end."""
# ruff: noqa: F403, F405  # all the words of the table

from dataclasses import replace
from typing import Any

from kakeya_router.store.sessions.session_changes import Closes
from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *


def op(claim: str, start: int, **fields: Any) -> Says:
    """A new operation, that began there."""
    common = {"op_id": claim, "kind": "generate", "router": "router", "lease_until_ms": LEASE}
    return having(claim=claim, start_length=start, **common | fields)


def begun(claim: str, start: int, number: int = 2, **fields: Any) -> dict[str, Any]:
    """A new operation that is the latest of the session, of which so many have begun."""
    begins = to(operation_start=start) if start else {}
    return to(begins, op=op(claim, start, **fields), operation_id=claim, operation_number=number,
              expiry=IN_60S, idle=GONE)  # fmt: skip


# fmt: off
REWOUND = ran(4) + begin(A, REWIND) + rewind(A, 2, lane_rewinds=None)
DONE = (ran(2) + begin(A, replace(GENERATE, seed=7)) + end(A, 5, 2, [3, 4, 5])).called("done")
"""The latest operation was "a", a turn of three tokens after two."""
PINNED = (OPEN + begin(A) + pin(A, ["f"]) + end(A, 2, 0, [1, 2])).called("pinned")
SPENT = OPEN + begin(A, tokens_per_minute=1) + end(A, 9, 0, range(9))
TAKEN_OVER = ran(1) + begin(A) + begin(B, go_on("a"))
INHERITED = OPEN + lapsed(A) + begin(B)
APPENDED = ran(4) + begin(A, APPEND) + end(A, 7, 4, [5, 6, 7])
DROPPED = ran(3) + drop() + begin(A)

SECOND = to(operation_number=2, expiry=IN_60S, idle=GONE)
FOR_ONE = Closes.EPHEMERAL
TURN = replace(GENERATE, num_tokens=3, digest="digest")
IN_TURN = (OPEN + begin(A, TURN)).called("turn")
TURNING: dict[str, Any] = {"append_digest": "digest"}
APPENDING: dict[str, Any] = {"kind": "append", "append_digest": "digest"}
LANELESS_BEGUN = to(op=op("a", 3), operation_id="a", operation_number=2, operation_start=3)
RECOVERED = to(op_claim="b", op_lease_until_ms=LEASE, op_taken_over=1, operation_number=3)
RENEWED = to(op_lease_until_ms=LEASE, expiry=IN_60S)
ENDED = to(USED, op=GONE)
APPENDED_NOW = to(append_start=0, append_end=3, append_digest="digest")
ONE_ANSWER = to(lane(2), journal(2), state="closing", boundaries=2, idle_since_ms=NOW, expiry=LANE_LEASE,
                op_kind="close", op_lease_until_ms=LANE_LEASE, op_op_id=GONE, op_parameters=GONE, op_before=GONE,
                op_expires_at=GONE, op_start_length=GONE, op_tokens_per_minute=GONE)
AS_BEFORE = to(op=GONE, idle=same_as("idle_since_ms"), expiry=same_as("idle_since_ms", 60_000))
FAILS = to(OFF, BACK, EMPTY, state="failed", op=GONE, journal=GONE, idle_since_ms=NOW, expiry=IN_60S)
LOSES = to(OFF, state="lost", expiry=in_ms(RETENTION.lost_ms))
PARKS = to(PARKED, KEPT, idle_since_ms=NOW)
OF_V = {name: value for name, value in PARKS.items() if name != "sessions"} | to(sessions_i_v=GONE)

ROWS: Rows = {
    "begin_operation": [
        Row((NOTHING, OPENING, CLOSING), begin(A), "missing"),
        Row(FAILED, begin(B), "failed"),
        Row((FORGETFUL + drop(), LOST), begin(B), "lost"),
        Row(OPEN, begin(A), "begun", begun("a", 0, 1)),
        Row(ran(2), begin(A, APPEND), "begun", begun("a", 2, **APPENDING, append_end=5)),
        Row(ran(2), begin(A, replace(GENERATE, seed=7)), "begun", to(begun("a", 2), operation_seed=7)),
        Row(ran(2), begin(A, TURN).called("turn"), "begun",
            to(begun("a", 2, **TURNING, append_end=5), operation_start=5)),
        Row(ran(2), begin(A, replace(GENERATE, at_length=2)).called("at its end"), "begun", begun("a", 2)),
        Row(ran(2), begin(A, replace(GENERATE, at_length=3)).called("elsewhere"), "apart"),
        Row(DONE, begin(B, replace(REWIND, behind="a")).called("behind it"), "begun",
            to(op=op("b", 5, kind="rewind"), operation_number=3, expiry=IN_60S, idle=GONE)),
        Row(DONE, begin(B, replace(REWIND, behind="v")).called("behind another"), "apart"),
        Row(OPEN + begin(A), begin(B, replace(REWIND, behind="v")).called("behind another"), "busy"),
        Row(ran(2), begin(A, FORK), "begun", to(SECOND, op=op("a", 2, kind="fork"))),
        Row(ran(2), begin(A, PARK), "begun", to(SECOND, op=op("a", 2, kind="park"))),
        Row(HALF + end(A, 2, 1, [2, 3]), begin(B, APPEND), "begun", begun("b", 3, **APPENDING, append_end=6)),
        Row(ran(2) + write(history_length=4), begin(A), "begun",  # Redis was set back
            to(begun("a", 2), history_length=2)),
        Row(RESUMED + end(A, 2, 2), begin(B), "begun", begun("b", 2)),
        Row((OPEN + begin(A), OPEN + lapsed(A) + renew(A), SWEPT + begin(A), DROPPED), begin(B), "busy"),
        Row(OPEN + lapsed(A), begin(B, by=PATIENT), "busy"),
        Row(INHERITED, begin(C), "busy"),
        Row(REWOUND, begin(B, APPEND), "busy"),
        Row(ran(2) + lapsed(A, APPEND), begin(B), "recover", to(RECOVERED, expiry=IN_60S)),
        Row(INHERITED + end(B, 3, 0, [1, 2, 3]), begin(C), "begun", begun("c", 3, 3)),
        # Its lane is gone.
        Row(ran(3) + drop(), begin(A), "parked", begun("a", 3)),
        Row(STORED + drop(), begin(B), "parked", begun("b", 3)),
        Row((SWEPT, ran(3) + park(), ran(3) + drop() + park()), begin(A), "parked", LANELESS_BEGUN),
        Row(SWEPT, begin(A, APPEND), "parked", to(LANELESS_BEGUN, op=op("a", 3, **APPENDING, append_end=6))),
        Row((SWEPT, SWEPT + join(incarnation="new")), begin(A, **STALE), "moved"),
        Row(SWEPT + lapsed(A), begin(B), "recover", RECOVERED),
        # The latest one is gone on with.
        Row(OPEN, begin(B, go_on("a")), "unknown"),
        Row(DONE, begin(B, go_on("run")), "unknown"),
        Row(DONE + run(1, APPEND), begin(B, go_on("a")), "unknown"),
        Row(DONE, begin(B, go_on("a")), "begun", to(SECOND, op=op("b", 5, op_id="a"), operation_number=3)),
        Row(DONE, begin(B), "begun", to(begun("b", 5, 3), operation_seed=0)),
        Row((DONE + begin(B, go_on("a")) + release(B), DONE + begin(B, FORK) + release(B)), begin(C, go_on("a")),
            "begun", to(SECOND, op=op("c", 5, op_id="a"), operation_number=4)),
        Row(ran(1) + begin(A), begin(B, go_on("other"), by=PATIENT), "busy"),
        Row(DONE + begin(B, go_on("a")), begin(C, go_on("b"), by=PATIENT), "busy"),
        Row(ran(1) + begin(A), begin(B, go_on("a"), by=PATIENT), "recover", to(RECOVERED, expiry=IN_60S)),
        Row(DONE + begin(B, go_on("a")), begin(C, go_on("a"), by=PATIENT), "recover",
            to(RECOVERED, expiry=IN_60S, op_claim="c", operation_number=4)),
        Row(PINNED, begin(B), "begun", to(begun("b", 2), operation_features="")),
        Row(PINNED, begin(B, go_on("a")), "begun", to(SECOND, op=op("b", 2, op_id="a"))),
        Row(PINNED, begin(B, REWIND), "begun", to(SECOND, op=op("b", 2, kind="rewind"))),
        Row(SPENT, begin(B, tokens_per_minute=1), "quota", gives=["tokens_per_minute", "1", ANY]),
        Row(SPENT, begin(B, go_on("a"), tokens_per_minute=1), "begun",
            to(SECOND, op=op("b", 9, op_id="a", tokens_per_minute=1))),
    ],
    "pin_operation": [
        Row((OPEN, PINNED), pin(A, ["g"]), "gone"),
        Row(OPEN + begin(A), pin(B, ["g"]), "gone"),
        Row((OPEN + begin(A), PINNED + begin(A, go_on("a"))), pin(A, ["h", "g"]), "pinned",
            to(operation_features="g,h")),
    ],
    "renew_operation": [
        Row((OPEN, HALF + lose(A)), renew(A), "gone"),
        Row(OPEN + lapsed(A), renew(B), "gone"),
        Row(CLOSING, renew(CLOSE), "gone"),
        Row((OPEN + lapsed(A), DROPPED, LANELESS), renew(A), "renewed", RENEWED),
        Row(SWEPT + begin(A), renew(A), "renewed", to(op_lease_until_ms=LEASE)),
    ],
    "end_operation": [
        Row(OPEN, end(A, 3, 0, [1, 2, 3]), "gone"),
        Row(OPEN + begin(A, APPEND), (end(A, 3, 0, [1, 2, 3], epoch=2), end(B, 3, 0, [1, 2, 3])), "gone"),
        Row(RESUMED, end(A, 2, 2, **STALE), "gone"),
        Row(OPEN + begin(A, APPEND), end(A, 3, 0, [1, 2, 3]), "ended", to(ENDED, lane(3), journal(3), APPENDED_NOW)),
        Row(APPENDED + begin(B), end(B, 10, 7, [8, 9, 10], retained="0-1,7-10"), "ended",
            to(ENDED, lane(10), journal(10), retained="0-1,7-10", boundaries="4,10")),
        Row(INHERITED, end(B, 3, 0, [1, 2, 3]), "ended", to(ENDED, lane(3), journal(3), boundaries=3)),
        Row(TAKEN_OVER, end(B, 2, 1, [2]), "ended", to(ENDED, lane(2), journal(2), boundaries="1,2")),
        Row(HALF, end(A, 2, 1, [2, 3]), "ended", to(ENDED, lane(2), journal(3), boundaries=3)),
        Row(HALF, end(A, 4, 2, [3, 4]), "ended", to(ENDED, lane(4), journal(4), boundaries=4)),
        # Its client left in the middle of the write: the tokens are in the history, and the lane lacks them.
        Row(OPEN + begin(A, APPEND) + extend(A, 0, [1, 2, 3]), end(A, 0, 0, retained=""), "ended", ENDED),
        Row(RESUMED + extend(A, 2, [3]), end(A, 3, 3), "ended",
            to(ENDED, history_length=3, kv_live_bytes=30, retained="0-3", ledger_v=(70, 30, 1), boundaries=3)),
        Row(OPEN + begin(A, tokens_per_minute=60), end(A, 2, 0, [1, 2]), "ended",
            to(ENDED, lane(2), journal(2), boundaries=2, spent=2)),
        # It began with an append: its answer begins behind that, and one of no token is no turn's end.
        Row(IN_TURN, end(A, 4, 0, [1, 2, 3, 4]), "ended", to(ENDED, lane(4), journal(4), boundaries=4)),
        Row(IN_TURN, end(A, 3, 0, [1, 2, 3]), "ended", to(ENDED, lane(3), journal(3), APPENDED_NOW)),
        # The lane has tokens that nobody knows, or others, or too few.
        Row(HALF, (end(A, 3, 2), end(A, 4, 2, [3]), end(A, 2, 3), end(A, 4, 3, [4])), "unknown"),
        Row(HALF, (end(A, 3, 3, history_digest=5), end(A, 4, 3, [4], history_digest=5)), "unknown"),
        Row(HALF, (end(A, 2, 2, history_digest=5), end(A, 3, 2, [3], history_digest=5)), "unlike"),
        Row(HALF, end(A, 3, 2, [3], history_digest=extended_digest(EMPTY_HISTORY, [1, 2, 3])), "ended",
            to(ENDED, lane(3), journal(3), boundaries=3)),
        Row((ran(4) + begin(A, APPEND), ran(4) + begin(A)), end(A, 3, 4, [5]), "regressed"),
        Row(ran(4) + begin(A, REWIND), end(A, 3, 4), "unknown"),
        # It lives for one answer.
        Row(EPHEMERAL + begin(A), end(A, 2, 0, [1, 2], closes=FOR_ONE), "closing", ONE_ANSWER),
        Row(EPHEMERAL + begin(A) + end(A, 2, 0, [1, 2], closes=FOR_ONE), end(A, 2, 0, [1, 2], closes=FOR_ONE),
            "closing"),
        Row(EPHEMERAL + begin(A, APPEND), end(A, 3, 0, [1, 2, 3], closes=FOR_ONE), "ended",
            to(ENDED, lane(3), journal(3), APPENDED_NOW)),
        Row(OPEN + begin(A), end(A, 2, 0, [1, 2], closes=FOR_ONE), "ended",
            to(ENDED, lane(2), journal(2), boundaries=2)),
        Row(OPEN + begin(A), end(A, 2, 0, [1, 2], closes=Closes.ANY).called("end, and close"), "closing", ONE_ANSWER),
    ],
    "release_operation": [
        Row(OPEN, release(A), "gone"),
        Row(OPEN + begin(A), release(B), "gone"),
        Row(OPEN + begin(A), release(A), "released", to(AS_BEFORE, operation_id="")),
        Row((ran(3) + begin(A, FORK), ran(3) + begin(A, PARK)), release(A), "released", AS_BEFORE),
        Row(DONE + begin(B, go_on("a")), release(B), "released", AS_BEFORE),
        Row(PINNED + begin(B), release(B), "released",
            to(AS_BEFORE, operation_id="a", operation_start=0, operation_features="f")),
        Row(DROPPED, release(A), "released", to(AS_BEFORE, operation_id="run", operation_start=0)),
        Row(SWEPT + begin(A), release(A), "released", to(op=GONE, operation_id="run", operation_start=0)),
        Row(INHERITED, release(B), "released", to(op_lease_until_ms=0)),
    ],
    "fail_session": [
        Row(OPEN, fail(A), "gone"),
        Row(HALF, fail(B), "gone"),
        Row(HALF + report(2), fail(A, "inv1"), "failed", to(FAILS, inv1_violations=1)),
        Row(HALF + report(2), fail(A, "inv2"), "failed", to(FAILS, inv2_violations=1)),
    ],
    "lose_session": [
        Row((FORGETFUL + begin(A), LANELESS), lose(B, start=2, token_ids=[3]), "gone"),
        Row(HALF + lose(A), lose(A, start=2, token_ids=[3], **STALE), "gone"),
        Row(tuple(HALF + write(state=state) for state in ("closing", "failed", "lost")),
            lose(A, start=2, token_ids=[3]), "gone"),
        Row(OPENING, lose(CREATE), "lost", to(LOSES, BACK, op=GONE)),
        Row(reserve(request_id="r") + mark_open() + FORGET + begin(A), lose(A, start=3, token_ids=[4]), "lost",
            to(LOSES, BACK, EMPTY, op=GONE, journal=GONE, journal_length=4, request=GONE)),
        Row(HALF, lose(A, start=2, token_ids=[3], for_good=True), "lost",
            to(LOSES, BACK, op=GONE, journal=GONE, journal_length=3)),
        Row(reserve(request_id="r", tenant="a", key_id="k") + mark_open() + begin(A) + extend(A, 0, [1, 2]),
            lose(A, start=1, token_ids=[2, 3, 4, 5]), "parked", to(PARKS, BACK, journal(5), op=GONE, history_length=5)),
        Row(HALF + report(2), lose(A), "parked", to(PARKS, BACK, EMPTY, op=GONE)),
        Row(LANELESS, lose(A, start=2, token_ids=[3]), "parked",  # it found no other lane
            to(KEPT, journal(3), op=GONE, history_length=3, idle_since_ms=NOW)),
        Row(HALF + drop(), lose(A, start=2, token_ids=[3]), "parked", to(PARKS, journal(3), op=GONE, history_length=3)),
        # A sweep.
        Row(OPEN, sweep(), "alive"),
        Row((LOST, SWEPT), sweep(), "gone"),
        Row(SWEPT, sweep(**STALE), "gone"),
        Row(CLOSING + drop(), sweep(), "gone", to(sessions=GONE)),
        Row(HALF + drop(), sweep(), "busy", to(sessions=GONE)),
        Row(OPENING + drop(), sweep(), "lost", to(LOSES, op=GONE)),
        Row(FORGETFUL + drop(), sweep(), "lost", to(LOSES, EMPTY, idle=GONE, journal=GONE)),
        Row(OPEN + lapsed(A) + drop(), sweep(), "parked", to(PARKS, op=GONE)),
        Row((ran(3) + drop(), DROPPED + release(A)), sweep(), "parked", to(PARKS, EMPTY, idle=GONE)),
        Row(RESUMED + end(A, 2, 2) + drop("v", "i-v"), sweep(), "parked", to(OF_V, EMPTY, idle=GONE)),
    ],
}
