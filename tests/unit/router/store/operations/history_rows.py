"""Rows of the table of scripts: histories that grow, are taken back, and get snapshots."""
# ruff: noqa: F403, F405  # all the words of the table

from dataclasses import replace

from kakeya_router.store.sessions.stored_snapshots import StoredSnapshot, text
from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *

# fmt: off
FORKED = ran(2) + reserve(of=TWO, source=SESSION, length=2) + begin(B)
GREAT = OPEN + begin(A) + extend(A, 0, [70_000, 2])
INHERITED = ran(2) + lapsed(A, APPEND) + begin(B)
APPENDING = ran(4) + begin(A, APPEND) + extend(A, 4, [5, 6, 7])
OTHERS = replace(APPEND, digest="another")
TRIMMED = OPEN + begin(A) + extend(A, 0, [1, 2, 3, 4, 5], 3)
RETRACTABLE = ran(2) + begin(A, APPEND) + extend(A, 2, [3, 4, 5], 4)
TURNS = ran(2) + run(2) + run(2) + put(BOTH)
REWINDING = TURNS + begin(A, REWIND)
REWOUND = ran(4) + begin(A, REWIND) + rewind(A, 3)
AT_END = StoredSnapshot("p/one-1-4", 0, 4, 20, extended_digest(EMPTY_HISTORY, range(1, 5)))
UNLIKE = StoredSnapshot("p/one-1-5", 0, 4, 20, 5)

APPENDED = to(append_start=4, append_end=7, append_digest="digest")
BACK_AT_4 = to(journal(4), history_length=4, num_rewinds=1, lane_rewinds=1, boundaries="2,4", append_end=GONE,
               operation_id="a", op_start_length=4, snapshots=text(FIRST), snapshot_bytes=20)
PARKED_AT_2 = to(PARKED, BACK, EMPTY, journal(2), history_length=2, num_rewinds=2, boundaries=2,
                 op_start_length=2, operation_start=2)
STORES = to(snapshots=text(FIRST), snapshot_store="store", snapshot_bytes=20)

HISTORY_ROWS: Rows = {
    "extend_journal": [
        Row(OPEN, extend(A, 0, [1]), "gone"),
        Row(OPEN + begin(A), (extend(B, 0, [1]), extend(A, 0, [1], epoch=2), extend(A, 1, [1])), "gone"),
        Row(OPEN + begin(A) + close(), extend(A, 0, [1]), "gone"),
        Row(GREAT, extend(A, 3, [4]), "gone"),
        Row((INHERITED, ran(2) + begin(A) + begin(B, go_on("a"))), extend(A, 2, [3, 4, 5]), "gone"),
        Row(RESUMED, extend(A, 2, [3], **STALE), "gone"),
        Row(OPEN + begin(A), extend(A, 0, [70_000, 2]), "extended", to(journal=[70_000, 2], journal_length=2)),
        Row(GREAT, (extend(A, 0, [70_000, 2]), extend(A, 0, [70_000]), extend(A, 2, [])), "extended"),
        Row(GREAT, extend(A, 1, [2, 3, 2**32 - 1]), "extended",
            to(journal=[70_000, 2, 3, 2**32 - 1], journal_length=4)),
        Row(RESUMED, extend(A, 2, [3]), "extended", journal(3)),
        Row(FORKED, extend(B, 2, [3]), "extended", journal(3)),  # the fork has its own
        Row(RETRACTABLE + retract(A, 2), extend(A, 2, [6, 7, 8]), "extended",
            to(journal=[2, 6, 7, 8], journal_length=5, append_end=5)),
        # An append is remembered with its last token.
        Row(INHERITED, extend(B, 2, [3, 4, 5]), "extended", to(journal(5), append_start=2, append_end=5,
            append_digest="digest")),
        Row(ran(4) + begin(A, APPEND), extend(A, 4, [5, 6]), "extended", journal(6)),
        Row(ran(4) + begin(A, APPEND) + extend(A, 4, [5, 6]), extend(A, 6, [7]), "extended", to(journal(7), APPENDED)),
        Row(APPENDING, extend(A, 6, [7], 1), "extended", to(journal=[7], journal_start=6)),
        Row(APPENDING + end(A, 7, 7) + run(1) + begin(B, OTHERS), extend(B, 8, [9, 10, 11, 12]), "extended",
            journal(12)),
        # The oldest tokens leave a journal that is too long.
        Row(OPEN + begin(A), extend(A, 0, [1, 2, 3], 3), "extended", journal(3)),
        Row(OPEN + begin(A) + extend(A, 0, [1, 2, 3]), extend(A, 3, [4, 5], 3), "extended",
            to(journal(5, 2), journal_start=2)),
        Row(TRIMMED, extend(A, 3, [4, 5], 3), "extended"),
        Row(TRIMMED, extend(A, 5, [6]), "extended", journal(6, 2)),
        Row(TRIMMED, extend(A, 5, [6, 7, 8, 9], 3), "extended", to(journal(9, 6), journal_start=6)),
        Row(TRIMMED + extend(A, 5, [6, 7, 8, 9], 3), extend(A, 5, [6, 7, 8, 9], 3), "extended"),
    ],
    "retract_journal": [
        Row(ran(2), retract(A, 1), "gone"),
        Row(RETRACTABLE, (retract(B, 3), retract(A, 3, epoch=2)), "gone"),
        Row(RESUMED, retract(A, 0, **STALE), "gone"),
        Row(RETRACTABLE, retract(A, 2), "retracted", to(journal=[2], journal_length=2, append_end=GONE, num_rewinds=1)),
        Row(RETRACTABLE + retract(A, 2), retract(A, 2), "retracted", to(num_rewinds=2)),
        Row(RETRACTABLE, retract(A, 1), "retracted", to(journal=GONE, journal_length=1, append_end=GONE, num_rewinds=1,
            op_start_length=1, operation_start=1)),
    ],
    "rewind_session": [
        Row(TURNS, rewind(A, 4), "gone"),
        Row(REWINDING, (rewind(B, 4), rewind(A, 4, epoch=2)), "gone"),
        Row(REWINDING, (rewind(A, 4, known={"snapshots": ""}), rewind(A, 4, known={"inherited": "other"})), "changed"),
        Row(REWINDING, rewind(A, 4, FIRST), "rewound", BACK_AT_4),
        Row(REWINDING + rewind(A, 4, FIRST), rewind(A, 2, FIRST, lane_rewinds=None), "rewound", PARKED_AT_2),
    ],
    "set_snapshots": [
        Row((NOTHING, OPENING, FAILED, REWOUND), put(FIRST), "gone"),
        Row(ran(4), put(FIRST, epoch=2), "gone"),
        Row(RESUMED, put(FIRST, **STALE), "gone"),
        Row(ran(4), (put(BOTH), put((UNLIKE,))), "unlike"),
        Row(ran(4) + begin(A), (put(BOTH), put((LATER,))), "ahead"),
        Row(ran(4) + put(FIRST), put(FIRST, known={"snapshots": ""}), "changed"),
        Row(ran(4), put(FIRST, known={"inherited": "other"}), "changed"),
        Row(ran(4) + put(FIRST) + run(1), put(BOTH, operation_number=1, operation_start=0), "changed"),
        Row((ran(4), SWEPT), put(FIRST), "set", STORES),
        Row(REWOUND, put(FIRST, num_rewinds=1), "set", to(snapshots=text(FIRST), snapshot_bytes=20)),
        Row(ran(4), put((AT_END,)), "set",
            to(snapshots=text((AT_END,)), snapshot_store="store", snapshot_bytes=20)),
        Row(ran(4) + put(FIRST) + run(1), put(BOTH), "set", to(snapshots=text(BOTH), snapshot_bytes=40)),
        Row(ran(4) + put(FIRST), put(), "set", to(snapshots="", snapshot_bytes=GONE)),
        # They make a part of the journal superfluous, but not what the latest operation has produced.
        Row(ran(4), put(FIRST, 3), "set", STORES),
        Row(ran(4) + run(2), put(FIRST, 2), "set", to(STORES, journal=[3, 4, 5, 6], journal_start=2)),
        Row(ran(4) + run(2) + put(FIRST, 2), put(FIRST, 1), "set"),
        Row(ran(4) + run(2), put(FIRST, 5), "set", to(STORES, journal=[5, 6], journal_start=4)),
        Row(ran(4) + run(2) + begin(A) + extend(A, 6, [7]), put(FIRST, 7), "set",
            to(STORES, journal=[7], journal_start=6)),
        Row(ran(4) + run(3) + run(0), put(FIRST, 7), "set", to(STORES, journal=GONE, journal_start=7)),
    ],
}
