"""Rows of the table of scripts: tags of places, and what becomes of them."""
# ruff: noqa: F403, F405  # all the words of the table

from typing import Any

from kakeya_router.store.session_record import LaneState, SessionId
from kakeya_router.store.sessions.session_changes import Closes
from kakeya_router.store.sessions.stored_tags import HistoryPlace, PlaceKind
from tests.unit.router.admission_stores import KEYS
from tests.unit.router.store.operations.rows import FAILS, LOSES, ONE_ANSWER, TURN
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *
from tests.unit.router.store.sessions.rows import CLAIMED, DELETED, OPENED, RESERVED_TWO

INDEX = KEYS.tagged("", SESSION.model)


@step
async def tag(world: World, place: str, *tags: str, op_id: str = "run") -> Any:
    """A place as "end 5", of the turn that `run` has made."""
    kind, length = place.split()
    return await world.sessions.tag(await world.record(), HistoryPlace(PlaceKind(kind), int(length)), tags, op_id)


def holds(num_rewinds: int = 0, **places: str) -> dict[str, str]:
    """A session's tags: of each place where its turn's answer began, and then the tags."""
    return {"num_rewinds": str(num_rewinds)} | {name.replace("_", "|"): text for name, text in places.items()}


def listed(*entries: str, of: SessionId = ONE) -> list[str]:
    return [f"{entry}|{of}" for entry in entries]


# fmt: off
ANSWERED = (ran(2) + run(3)).called("answered")
"""The answer began at 2 and ended at 5."""
TAGGED = (ANSWERED + tag("head 1", "aa") + tag("start 2", "bb") + tag("end 5", "cc", "dd")).called("tagged")
ALL = holds(head_1="2 aa", start_2="2 bb", end_5="2 cc dd")
ALL_LISTED = listed("aa|head|1", "bb|start|2", "cc|end|5", "dd|end|5")
ONE_TAG = (ANSWERED + tag("end 5", "aa")).called("one_tag")
NO_TAGS = to(tags=GONE, tagged=GONE)
ANSWERING = (ran(2) + begin(A) + extend(A, 2, [3])).called("answering")
FOUR_TURNS = sum(
    (run(2) + tag(f"start {n}", f"a{n}") + tag(f"end {n + 2}", f"b{n}") for n in (2, 4, 6)),
    ran(2) + tag("head 1", "cc", op_id="") + tag("end 2", "b0"),
).called("four_turns")
REWOUND_TO_3 = ran(4) + begin(A, REWIND) + rewind(A, 3) + end(A, 3, 3, num_rewinds=1)
fork = reserve(of=TWO, source=SESSION, length=2)
FORKING = TAGGED + fork
open_fork = mark_open(of=TWO, lane=LaneState(2, 20), source=SESSION)
LEFT = redis("HSET", KEYS.tags(ONE), "index", INDEX, "num_rewinds", 0, "end|3", "0 0000000000000001:aa") + redis(
    "ZADD", INDEX, 0, "aa|0000000000000001|end|3|p.one")
"""Tags that an older router leaves where it claims a session."""

REWINDS = to(append_end=GONE, lane_rewinds=1, num_rewinds=1, operation_id="a", snapshot_store="store")
AT_4 = to(REWINDS, journal(4), history_length=4, op_start_length=4, operation_start=4, boundaries=2)
AT_5 = to(REWINDS, operation_start=5)
COUNTED = ALL | {"num_rewinds": "1"}
INHERITED = to(RESERVED_TWO, session_two=ANY, journal_two=[1, 2], ledger=(200, 50, 2))
FORK_OPENED = {f"{name}_two": value for name, value in OPENED.items()} | to(
    history_length_two=2, kv_live_bytes_two=20, ledger=(200, 70, 2))
FOUND_TWO = ["aa|head|1|p.one", "aa|head|1|p.two", "bb|start|2|p.one", "bb|start|2|p.two", *ALL_LISTED[2:]]
TAG_ROWS: Rows = {
    "tag_turn": [
        Row((NOTHING, OPENING, CLOSING), tag("end 5", "aa"), "missing"),
        Row(FAILED, tag("end 5", "aa"), "failed"),
        Row(LOST, tag("end 5", "aa"), "lost"),
        Row(ANSWERING, tag("end 3", "aa", op_id="a"), "busy"),
        Row(ANSWERED + begin(A, REWIND), (tag("end 5", "aa"), tag("head 1", "aa", op_id="")), "busy"),
        Row(TAGGED + begin(A, REWIND), tag("end 5", "cc"), "tagged"),
        # The places of the latest answer.
        Row(ANSWERED, tag("end 5", "bb", "aa", "bb"), "tagged",
            to(tags=holds(end_5="2 bb aa"), tagged=listed("aa|end|5", "bb|end|5"))),
        Row(ANSWERED, tag("start 2", "aa"), "tagged", to(tags=holds(start_2="2 aa"), tagged=listed("aa|start|2"))),
        Row(ANSWERING, tag("start 2", "aa", op_id="a"), "tagged",
            to(tags=holds(start_2="2 aa"), tagged=listed("aa|start|2"))),
        Row(ANSWERED, tag("head 1", "aa"), "tagged", to(tags=holds(head_1="2 aa"), tagged=listed("aa|head|1"))),
        Row((ANSWERED, ran(5)), tag("head 5", "aa", op_id=""), "tagged",
            to(tags=holds(head_5="0 aa"), tagged=listed("aa|head|5"))),
        Row((ANSWERED + begin(A, FORK), ANSWERED + drop() + sweep()), tag("end 5", "aa"), "tagged",
            to(tags=holds(end_5="2 aa"), tagged=listed("aa|end|5"))),
        # What a history of that length may not be any more.
        Row(ANSWERED, (tag("end 4", "aa"), tag("end 6", "aa"), tag("start 1", "aa"), tag("start 5", "aa"),
                       tag("head 3", "aa"), tag("end 5", "aa", op_id="b"), tag("end 5", "aa", op_id=""),
                       tag("start 2", "aa", op_id=""), tag("head 6", "aa", op_id="")), "elsewhere"),
        Row((ANSWERED + begin(A), ANSWERED + begin(A) + end(A, 6, 5, [6])),
            (tag("end 5", "aa"), tag("start 2", "aa")), "elsewhere"),
        Row(REWOUND_TO_3, (tag("end 3", "aa"), tag("head 1", "aa", op_id="")), "elsewhere"),
        Row(ran(2) + begin(A, TURN), tag("start 5", "aa", op_id="a"), "elsewhere"),  # not appended yet
        # Repeated, and more of them.
        Row(ONE_TAG, (tag("end 5", "aa"), tag("end 5", "aa", "aa", op_id="b")), "tagged"),
        Row(ONE_TAG + begin(A), tag("end 5", "aa"), "tagged"),
        Row(ONE_TAG, tag("end 5", "bb", "aa"), "tagged",
            to(tags=holds(end_5="2 aa bb"), tagged=listed("aa|end|5", "bb|end|5"))),
        Row(ONE_TAG, tag("end 5", "bb", "cc", "dd", "ee"), "tagged",
            to(tags=holds(end_5="2 bb cc dd ee"), tagged=listed("bb|end|5", "cc|end|5", "dd|end|5", "ee|end|5"))),
        # The last four turns and one head.
        Row(FOUR_TURNS + run(1), tag("end 9", "ff"), "tagged", to(
            tags=holds(head_1="0 cc", start_2="2 a2", end_4="2 b2", start_4="4 a4", end_6="4 b4", start_6="6 a6",
                       end_8="6 b6", end_9="8 ff"),
            tagged=listed("a2|start|2", "a4|start|4", "a6|start|6", "b2|end|4", "b4|end|6", "b6|end|8", "cc|head|1",
                          "ff|end|9"))),
        Row(TAGGED, tag("head 2", "ff"), "tagged", to(
            tags=holds(start_2="2 bb", end_5="2 cc dd", head_2="2 ff"),
            tagged=listed("bb|start|2", "cc|end|5", "dd|end|5", "ff|head|2"))),
        # An older router has taken the history back.
        Row(TAGGED + write(num_rewinds=1), tag("end 5", "ff"), "tagged",
            to(tags=holds(1, end_5="2 ff"), tagged=listed("ff|end|5"))),
    ],
    # They go with what they name.
    "rewind_session": [
        Row(TAGGED + begin(A, REWIND), rewind(A, 4), "rewound",
            to(AT_4, tags=holds(1, head_1="2 aa", start_2="2 bb"), tagged=ALL_LISTED[:2])),
        Row(TAGGED + begin(A, REWIND), rewind(A, 5), "rewound", to(AT_5, tags=COUNTED)),
        Row(ONE_TAG + begin(A, REWIND), rewind(A, 4), "rewound", to(AT_4, NO_TAGS)),
        Row(TAGGED + write(num_rewinds=1) + begin(A, REWIND), rewind(A, 4), "rewound",
            to(AT_4, NO_TAGS, num_rewinds=2)),
    ],
    "retract_journal": [
        Row(TAGGED + begin(A, APPEND) + extend(A, 5, [6, 7]), retract(A, 5), "retracted",
            to(journal(5), append_end=GONE, num_rewinds=1, tags=COUNTED)),
    ],
    "begin_close": [
        Row(TAGGED, (close(), close(cause=ABANDON), close(cause=IDLE)), "claimed", to(CLAIMED, NO_TAGS)),
    ],
    "end_operation": [
        Row(TAGGED + begin(A), end(A, 6, 5, [6], closes=Closes.ANY), "closing",
            to(ONE_ANSWER, lane(6), journal(6), NO_TAGS, boundaries="2,5,6")),
    ],
    "delete_session": [
        Row(ran(3) + close() + LEFT, delete(), "deleted", to(DELETED, NO_TAGS, journal=GONE)),
    ],
    "fail_session": [
        Row(TAGGED + begin(A), fail(A, "inv1"), "failed", to(FAILS, NO_TAGS, inv1_violations=1)),
    ],
    "lose_session": [
        Row(TAGGED + begin(A), lose(A, start=5, token_ids=[], for_good=True), "lost",
            to(LOSES, BACK, EMPTY, NO_TAGS, op=GONE, journal=GONE)),
        Row(TAGGED + begin(A), lose(A, start=5, token_ids=[]), "parked",
            to(PARKED, KEPT, BACK, EMPTY, op=GONE, idle_since_ms=NOW)),
    ],
    "park_session": [
        Row(TAGGED, park(), "parked", to(PARKED, KEPT, BACK, EMPTY, idle=GONE)),
    ],
    # A fork has those up to where it begins, which are found once it is open.
    "reserve_session": [
        Row(TAGGED, fork, "reserved", to(INHERITED, tags_two=holds(head_1="2 aa", start_2="2 bb"))),
        Row((ANSWERED, TAGGED + write(num_rewinds=1)), fork, "reserved", INHERITED),
    ],
    "mark_open": [
        Row(FORKING, open_fork, "open", to(FORK_OPENED, tagged=FOUND_TWO)),
    ],
}
