"""Rows of the table of scripts: lanes that are lost, taken, exchanged and given back."""
# ruff: noqa: F403, F405  # all the words of the table

from dataclasses import replace

from kakeya_router.store.sessions.stored_snapshots import text
from tests.unit.router.admission_stores import KEYS
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *


def on_v(num_bytes: int) -> Steps:
    """The worker v, of 200 bytes, with a session of so many."""
    other = reserve(of=TWO, worker_id="v", incarnation="i-v", reserved_bytes=num_bytes) + mark_open(of=TWO)
    return (JOINED + other).called(f"on_v({num_bytes})")


# fmt: off
OWNED = reserve(tenant="a", key_id="k") + mark_open() + begin(A) + extend(A, 0, [1, 2])
EVICTED = ran(5) + remove(KEYS.journal(ONE)) + begin(A) + extend(A, 5, [6, 7])
OFFER = JOINED + ran(3) + offer()
"""Its history of three is to go to the worker v."""
RETURNED = to(state="open", epoch=NOW, history_length=0, expiry=IN_60S)
ON_W = to(RETURNED, worker_id="w", incarnation="i-w", address="127.0.0.1:1", reserved_bytes=100,
          ledger=(100, 0, 1), sessions=["p.one"], usage={"|sessions": 1, "|bytes": 100})
TO_V = to(worker_id="v", incarnation="i-v", address="127.0.0.1:2", reserved_bytes=70, sessions_i_v=["p.one"])
ON_V = to(RETURNED, TO_V, ledger_v=(70, 0, 1))
MOVED = to(TO_V, BACK, epoch=same_as("offered_epoch"), offered_until_ms=GONE, sessions=GONE, ledger_v=(70, 30, 1),
           usage={"|sessions": 1, "|bytes": 70})
OFFERS = to(offered_epoch=NOW, offered_until_ms=OFFER_LEASE)
PARKS = to(PARKED, KEPT, idle=GONE)

ROWS: Rows = {
    "lose_lane": [
        Row((OPEN, HALF + close()), lose_lane(A), "gone"),
        Row(HALF, lose_lane(B), "gone"),
        Row((FORGETFUL + begin(A), EVICTED), lose_lane(A), "lost"),
        Row(OWNED + report(3), lose_lane(A), "parked", to(PARKED, BACK, EMPTY, history_length=2)),
        Row(STORED + begin(A), lose_lane(A), "parked", to(PARKED, BACK, EMPTY)),
        Row(LANELESS, lose_lane(A), "parked"),
    ],
    "resume_session": [
        Row((JOINED + HALF, RESUMED), resume(A), "gone"),  # it has a lane
        Row(JOINED + LANELESS, resume(B), "gone"),
        Row(LANELESS, resume(A), "away"),
        Row(JOINED + LANELESS, resume(A, OLD_WORKER), "away"),
        Row((LANELESS + drain(), LANELESS + beat(leaving=True)), resume(A, WORKER), "away"),
        Row(LANELESS + drain() + beat(), resume(A, WORKER), "away"),
        Row(on_v(131) + LANELESS, resume(A), "full"),
        Row(on_v(130) + LANELESS + DUE, resume(A), "resumed",
            to(ON_V, ledger_v=(200, 0, 2), sessions_i_v=["p.one", "p.two"], usage={"|sessions": 2, "|bytes": 200})),
        Row(JOINED + OWNED + lose_lane(A), resume(A), "resumed",
            to(ON_V, usage={"a|sessions": 1, "a|bytes": 70, "key:k|sessions": 1})),
        Row(LANELESS + drain() + drain(False), resume(A, WORKER), "resumed", ON_W),
        Row(LANELESS + beat(leaving=True) + beat(), resume(A, WORKER), "resumed", ON_W),
        Row(LANELESS + enter("x"), resume(A, WORKER), "wait"),
        Row(LANELESS + enter("x"), resume(A, WORKER, "!"), "resumed", ON_W),
        Row(LANELESS + enter("x"), resume(A, WORKER, "x"), "resumed", to(ON_W, queue=GONE, waiters=GONE)),
    ],
    "offer_lane": [
        Row(OPENING, offer(), "changed"),
        Row(OPEN, offer(epoch=2), "changed"),
        Row((OPEN + begin(A), OPEN + offer()), offer(), "busy"),
        Row((OPEN, OPEN + offer(-1)), offer(), "offered", OFFERS),
        Row((OPEN + begin(A), OPEN + offer() + begin(A)), offer(claim=A), "offered", OFFERS),
    ],
    "withdraw_lane": [
        Row(OPEN, withdraw(), "gone"),
        Row(OPEN + offer(), withdraw(others=1), "gone"),
        Row(OPEN + offer(), withdraw(), "withdrawn", to(offered_until_ms=GONE)),
    ],
    "move_session": [
        Row(OFFER, move(3), "moved", MOVED),
        Row(OFFER, move(3, None, FIRST), "moved",
            to(MOVED, snapshots=text(FIRST), snapshot_store="store", snapshot_bytes=20)),
        Row(JOINED + ran(3) + begin(A) + offer(claim=A), move(3, A), "moved", MOVED),
        Row(OFFER, (move(2), move(4), move(3, epoch=2), move(3, others=1)), "changed"),
        Row((OFFER + remove(KEYS.session(ONE)), OFFER + close(), OFFER + withdraw()), move(3), "changed"),
        Row((OFFER + begin(A), JOINED + ran(3) + offer(-1)), move(3), "changed"),
        Row(OFFER + begin(A) + release(A), move(3, operation_number=1), "changed"),
        Row(OFFER, move(3, onto=OLD_WORKER), "away"),
        Row(OFFER, move(3, onto=replace(OTHER_WORKER, lane_bytes=201)), "full"),
    ],
    "park_session": [
        Row((NOTHING, OPENING, CLOSING), park(), "missing"),
        Row(FAILED, park(), "failed"),
        Row(OPEN, park(epoch=2), "changed"),
        Row((OPEN + begin(A), ran(3) + park() + begin(A)), park(), "busy"),
        Row(OPEN + lapsed(A), park(by=PATIENT), "busy"),
        Row(OPEN + lapsed(A), park(), "left"),
        Row(FORGETFUL, (park(), park(by_journal=False)), "unrecoverable"),
        Row(STORED, park(), "unrecoverable"),  # the store does not work now
        Row(STORED, park(by_journal=False), "parked", to(PARKS, BACK, EMPTY)),
        Row(ran(3), park(), "parked", to(PARKS, BACK, EMPTY)),
        Row(reserve(ttl_ms=7_200_000) + mark_open(), park(), "parked", to(PARKED, BACK, idle=GONE)),
        Row(ran(3) + park(), park(), "no_lane"),
        # Its worker is gone.
        Row(ran(3) + drop(), park(), "no_lane", to(PARKS, EMPTY)),
        Row(ran(3) + lapsed(A) + extend(A, 3, [4]) + drop(), park(), "no_lane",
            to(PARKED, KEPT, EMPTY, history_length=4, op=GONE)),
        Row((FORGETFUL + drop(), LOST), park(), "lost"),
        # Somebody waits for its lane.
        Row(OPEN, (park(idle_ms=3_600_000), park(idle_ms=0, wanted_by="other")), "kept"),
        Row(OPEN, park(idle_ms=0), "parked", to(PARKS, BACK)),
    ],
}
