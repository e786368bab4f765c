"""Rows of the table of scripts: the queue, which takes two here."""
# ruff: noqa: F403, F405  # all the words of the table

from kakeya_router.store.sessions.session_changes import Limits
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *

# fmt: off
ROWS: Rows = {
    "enter_queue": [
        Row(NOTHING, enter("x"), "waiting", to(queue=["|x"], waiters=ANY)),
        Row(enter("x"), enter("y"), "waiting", to(queue=["|x", "|y"], waiters=ANY)),
        Row(enter("x") + enter("y"), enter("x"), "waiting", to(queue=["|y", "|x"], waiters=ANY)),
        Row(enter("x") + enter("y"), enter("z"), "full", to(waiters=ANY)),
        Row(enter("x", "a") + enter("y", "b"), enter("z", "c"), "full", to(waiters=ANY)),
        Row(enter("x", "a") + enter("y", "a"), enter("z", "b"), "waiting",
            to(queue=["a|x", "b|z"], waiters=ANY, evicted=["y"])),
        Row((OPEN, enter("y")), enter("x", limits=Limits(1)), "quota", gives=["sessions", "1"]),
        Row(OPEN, enter("x", limits=Limits(0, 199)), "quota", gives=["reserved_bytes", "199"]),
    ],
}
