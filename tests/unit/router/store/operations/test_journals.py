"""Histories over many operations: their digests, their turns, and what is read of them."""
# ruff: noqa: F403, F405  # all the words of the table

import random

import pytest

from kakeya_router.snapshots.past import Past
from kakeya_router.store.session_record import SessionRecord
from kakeya_router.store.sessions.session_store import pack
from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from tests.unit.router.admission_stores import KEYS
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *


async def past(world: World, length: int) -> tuple[SessionRecord, bytes, int | None]:
    found = await world.sessions.past(await world.record(), length)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("length", "tokens"),
    [(0, []), (1, []), (2, []), (3, [3]), (5, [3, 4, 5]), (7, [3, 4, 5, 6, 7]), (8, [3, 4, 5, 6, 7])],
)
async def test_read_past(world: World, length: int, tokens: list[int]) -> None:
    assert await world.sessions.past(SESSION, length) is None
    await (OPEN + begin(A) + extend(A, 0, range(1, 8), max_tokens=5)).bring_about(world)
    await world.redis.call(lambda redis: redis.script_flush())
    digest = extended_digest(EMPTY_HISTORY, range(1, length + 1)) if 2 <= length <= 7 else None
    assert await past(world, length) == (await world.record(), pack(tokens), digest)


async def test_a_part_of_a_journal_is_read(world: World) -> None:
    await (OPEN + begin(A) + extend(A, 0, [70_000, 2, 3, 2**32 - 1])).bring_about(world)
    record, read = await world.record(), world.sessions.journal
    assert await read(record, 1, 3) == [2, 3]
    assert await read(record, 2, 9) == [3, 2**32 - 1]
    assert await read(record, 4, 9) == await read(record, 2, 2) == []
    await extend(A, 4, [5, 6], max_tokens=3).bring_about(world)
    assert await read(await world.record(), 3, 5) == [2**32 - 1, 5]
    assert await read(await world.record(), 1, 5) == []


async def test_a_long_journal_is_trimmed_a_sixteenth_at_a_time(world: World) -> None:
    """To trim is to copy what is left: a group of tokens must not cost that."""
    await (OPEN + begin(A)).bring_about(world)
    starts = []
    for length in range(64, 80):
        await extend(A, length - 64 if length == 64 else length - 1, range(64 if length == 64 else 1), 64).call(world)
        starts.append((await world.record()).journal_start)
    assert starts == [*[0] * 5, *[5] * 5, *[10] * 5, 15]


async def test_the_digests_of_a_history_are_those_of_its_tokens_whatever_is_done_to_its_journal(world: World) -> None:
    draw, history, start = random.Random(11), list[int](), 0
    await (OPEN + begin(A)).bring_about(world)
    for _ in range(150):
        kind = draw.choice(("extend", "extend", "again", "retract", "rewind", "trim", "old extends", "old trims"))
        new = [draw.randrange(1 << 32) for _ in range(draw.randrange(20))]
        length = draw.randint(start, len(history))
        match kind:
            case "extend":
                reply = await extend(A, len(history), new, max_tokens=1000).call(world)
                history += new
                assert int(reply.digest, 16) == extended_digest(EMPTY_HISTORY, history)
            case "again":
                await extend(A, length, [*history[length:], *new], max_tokens=1000).call(world)
                history += new
            case "retract":
                await retract(A, length).call(world)
                del history[length:]
            case "rewind":
                await rewind(A, length).call(world)
                del history[length:]
            case "trim":
                start = max(start, length - 3)
                await extend(A, len(history), [], max_tokens=len(history) - start).call(world)
            case "old extends":
                await world.redis.commands([("APPEND", KEYS.journal(ONE), pack(new))])
                history += new
                await write(journal_length=len(history)).call(world)
            case "old trims":
                start = max(start, length - 3)
                await world.redis.commands([("SET", KEYS.journal(ONE), pack(history[start:]))])
                await write(journal_start=start).call(world)
        record, tokens, digest = await past(world, len(history))
        assert digest == extended_digest(EMPTY_HISTORY, history)
        assert not Past(record, len(history), tokens, digest).is_damaged
    assert start > 0


async def test_an_older_router_that_takes_a_history_back_leaves_no_digest(world: World) -> None:
    taken_back = write(journal_length=20, num_rewinds=1)
    await (ran(5) + begin(A) + extend(A, 5, range(100, 120), max_tokens=10) + taken_back).bring_about(world)
    await world.redis.call(lambda redis: redis.set(KEYS.journal(ONE), pack([7] * 5)))
    assert (await past(world, 20))[2] is None
    # It is known again from what the lane says.
    digest = extended_digest(EMPTY_HISTORY, range(20))
    assert (await end(A, 20, 20, history_digest=digest).call(world)).outcome == "ended"
    assert (await world.record()).digest_at(20) == digest


async def test_a_journal_that_was_evicted_begins_where_the_history_ends(world: World) -> None:
    await ran(5).bring_about(world)
    before = await world.record()
    assert before.is_recoverable
    await (remove(KEYS.journal(ONE)) + begin(A) + extend(A, 5, [6, 7])).bring_about(world)
    assert await world.journaled() == [6, 7]
    record = await world.record()
    assert (record.journal_start, record.journal_length, record.is_recoverable) == (5, 7, False)
    assert record.digest_at(5) == before.digest_at(5) is not None
    assert (await lose_lane(A).call(world)).outcome == "lost"


async def test_the_last_four_turns_are_remembered(world: World) -> None:
    await (OPEN + run(3, APPEND)).bring_about(world)
    assert (await world.record()).turn_boundaries == []
    boundaries = []
    for num_tokens in (1, 2, 10, 1, 1):
        await run(num_tokens).bring_about(world)
        boundaries.append((await world.record()).journal_length)
        await (run(0) + run(5, APPEND)).bring_about(world)  # no turns
        assert (await world.record()).turn_boundaries == boundaries[-4:]
    assert len(boundaries) == 5
