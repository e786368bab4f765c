"""Every outcome of every Lua script: a table of script, state, call and outcome, and of all that changes in Redis.

The rows are in `rows.py` of each room; stories, which take many calls, stand beside them.
"""

from typing import Any

import pytest

from kakeya_router.store.scripts import scripts
from kakeya_router.store.session_record import SessionRecord
from tests.unit.router.store.fleet.rows import ROWS as FLEET
from tests.unit.router.store.lanes.rows import ROWS as LANES
from tests.unit.router.store.objects.rows import ROWS as OBJECTS
from tests.unit.router.store.operations.history_rows import HISTORY_ROWS as HISTORIES
from tests.unit.router.store.operations.rows import ROWS as OPERATIONS
from tests.unit.router.store.queue.rows import ROWS as QUEUE
from tests.unit.router.store.script_world import ANY, Moment, Row, Steps, World, changes, is_said_by, same_as
from tests.unit.router.store.sessions.kept_rows import KEPT_ROWS as KEPT
from tests.unit.router.store.sessions.rows import ROWS as SESSIONS
from tests.unit.router.store.sessions.tag_rows import TAG_ROWS as TAGS

TABLE = [
    (script, state, call, row)
    for room in (FLEET, HISTORIES, KEPT, LANES, OBJECTS, OPERATIONS, QUEUE, SESSIONS, TAGS)
    for script, rows in room.items()
    for row in rows
    for state, call in row.cases
]
NAMES = [f"{script}: {state.name}: {call.name}: {row.outcome}" for script, state, call, row in TABLE]
GIVEN = {"extended": [same_as("journal_length"), ANY], "offered": [same_as("offered_epoch")], "waiting": [ANY]}
"""What comes with these outcomes; the digests of histories have tests of their own."""
# Their answer has the record as it was before.
BEFORE = ("begin_close", "park_session")


@pytest.mark.parametrize(("script", "state", "call", "row"), TABLE, ids=NAMES)
async def test_a_script_answers_and_changes_what_its_row_says(
    world: World, script: str, state: Steps, call: Steps, row: Row
) -> None:
    await state.bring_about(world)
    began, before = await world.later(), await world.held()
    world.redis.answers.clear()
    returned = await call.call(world)
    ended, after = await world.redis.now_ms(), await world.held()
    ((name, answer),) = world.redis.answers
    outcome, *given = [answer] if isinstance(answer, str) else answer
    assert (name, outcome) == (script, row.outcome)
    _check_returned(returned, script, outcome, given)
    at = Moment(began, ended, after)
    if given and isinstance(given[0], list):
        record = dict(zip(given[0][::2], given[0][1::2], strict=True))
        name = "session" if record["session_id"] == "p.one" else "session_two"
        assert record == (before if script in BEFORE else after)[name]
    else:
        said = row.gives or GIVEN.get(outcome, [])
        assert all(is_said_by(said, each, at) for said, each in zip(said, given, strict=True)), given
    found = changes(before, after)
    for key in found.keys() & row.changes.keys():
        if is_said_by(row.changes[key], found[key], at):
            found[key] = row.changes[key]
    assert found == row.changes


def _check_returned(returned: Any, script: str, outcome: str, given: list[Any]) -> None:
    """What a store makes of the answer."""
    if isinstance(returned, bool):
        assert returned == (outcome == scripts()[script].outcomes[0])
    elif isinstance(returned, str):
        assert returned == outcome
    else:
        assert returned.outcome == outcome
        if given and isinstance(given[0], list):
            assert returned.record == SessionRecord.from_pairs(given[0])


@pytest.mark.parametrize("script", sorted(script for script, each in scripts().items() if each.outcomes))
def test_a_script_has_a_row_for_each_of_its_outcomes(script: str) -> None:
    assert {row.outcome for name, _, _, row in TABLE if name == script} == {*scripts()[script].outcomes}


def test_no_row_is_there_twice() -> None:
    assert len(NAMES) == len(set(NAMES))
