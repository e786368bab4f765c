"""Rows of the table of scripts: workers that come, speak and go."""
# ruff: noqa: F403, F405  # all the words of the table

from tests.unit.router.admission_stores import KEYS
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *

# fmt: off
HEARD = to(lease=WORKER_LEASE, worker_heartbeat_ms=NOW)
NEW = to(HEARD, lost=["i-w"], worker_incarnation="new")
ALIVE = to(HEARD, worker_reported_kv_live_bytes=70, worker_rss_bytes=5_000_000_000)
JOINED_NOW = to(lease_v=WORKER_LEASE, ledger_v=(0, 0, 0), worker_v=having(incarnation="i-v", heartbeat_ms=NOW))
EVICTED = OPEN + remove(KEYS.expiry) + remove(KEYS.idle) + remove(KEYS.sessions(WORKER.incarnation))
swept = redis("SREM", KEYS.lost, WORKER.incarnation)
anew = join(incarnation="new")

ROWS: Rows = {
    "join_worker": [
        Row(NOTHING, JOINED, "joined", JOINED_NOW),
        Row(OPEN, join(), "renewed", HEARD),
        Row(OPEN, anew, "replaced", to(NEW, ledger=(0, 0, 0))),
        Row(drain(), anew, "replaced", to(NEW, worker_drain_asked=0)),
        Row(NOTHING, join(OTHER_WORKER, again=True), "joined", JOINED_NOW),
        Row(OPEN, join(again=True), "renewed", HEARD),
        Row(OPEN, join(incarnation="new", again=True), "taken"),
        Row(OPEN, (join(OTHER_WORKER, model="n"), join(model="n")), "other_model", gives=["m"]),
        Row(anew, join(), "sweeping"),
        Row(anew + swept, join(), "replaced", to(NEW, lost=["new"], worker_incarnation="i-w")),
    ],
    "heartbeat": [
        Row(NOTHING, beat(), "renewed", ALIVE),
        Row(NOTHING, beat(leaving=True), "renewed", to(ALIVE, worker_leaving=1)),
        Row(NOTHING, beat(tunnels="r:1,s:1"), "renewed", to(ALIVE, worker_tunnels="r:1,s:1")),
        Row(NOTHING, beat(number=2), "renewed", to(ALIVE, worker_heartbeat_number=2)),
        Row(beat(number=2), beat(number=3, kv_live_bytes=30), "renewed",
            to(HEARD, worker_heartbeat_number=3, worker_reported_kv_live_bytes=30)),
        Row(beat(number=2), (beat(number=1, kv_live_bytes=30), beat(number=2, kv_live_bytes=30)), "renewed", HEARD),
        Row(NOTHING, (beat(incarnation="old"), beat("x")), "unknown"),
    ],
    "drain_worker": [
        Row(NOTHING, drain(), "marked", to(worker_drain_asked=1)),
        Row(drain(), drain(False), "marked", to(worker_drain_asked=0)),
        Row(NOTHING, (drain(incarnation="old"), drain(worker_id="x")), "unknown"),
    ],
    "drop_worker": [
        Row(NOTHING, (drop(incarnation="old"), drop("x"), drop(lapsed_only=True)), "kept"),
        Row(drop(), drop(), "kept"),
        Row((SILENT, OPEN + SILENT), (drop(), drop(lapsed_only=True)), "dropped",
            to(worker=GONE, lease=GONE, ledger=GONE, lost=["i-w"])),
    ],
    "report_lane": [
        Row((NOTHING, FAILED, LOST), report(3), "orphan"),
        Row(OPEN + begin(A), (report(3, epoch=2), report(3, incarnation="old")), "orphan"),
        Row(RESUMED, report(2), "orphan"),
        Row((OPENING, OPEN, CLOSING, OPEN + drop() + anew), report(3), "kept"),
        Row(OPEN + begin(A, APPEND), report(3), "kept"),  # all of an append would be journaled
        Row(OPEN + begin(A) + report(3), report(2), "kept"),
        Row(OPEN + begin(A), report(3, num_rewinds=1), "kept"),
        Row(BEHIND + report(3), report(4), "kept"),
        Row(OPEN + offer(), report(0, OFFERED, "i-v"), "kept"),
        Row((OPEN + begin(A), BEHIND), report(3), "updated", lane(3)),
        Row(OPEN + begin(A) + drop() + anew, report(3), "updated",
            to(history_length=3, kv_live_bytes=30, retained="0-3")),
        Row(EVICTED, report(0), "updated",
            to(retained="0-0", expiry=IN_60S, idle=same_as("idle_since_ms"), sessions=["p.one"])),
    ],
}
