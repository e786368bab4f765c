"""A script that runs for several calls in one command."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kakeya_router.store import connection as connection_module
from kakeya_router.store.connection import _arranged as arranged
from kakeya_router.store.connection import _evalsha as evalsha
from kakeya_router.store.outcomes import ExtendJournal
from kakeya_router.store.script_calls import together
from kakeya_router.store.scripts import read
from kakeya_router.store.session_record import Claim
from kakeya_router.store.sessions.operation_store import JournalEnd, JournalPart
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import unpack
from tests.unit.router.admission_stores import KEYS, Stores, stores_on, worker_record

RUN = Claim("run")
PRELUDE = "-- Both.\nlocal function both()\n  return key.first .. arg.word\nend\n"
TELLING = read(
    "telling",
    PRELUDE,
    "-- Tells what it gets.\n-- key first, others...\n-- arg word, words...\n"
    "return {both(), table.concat(key.others, ' '), table.concat(arg.words, ' ')}",
)


@pytest.fixture
async def stores(redis_url: str) -> AsyncIterator[Stores]:
    async with stores_on(redis_url) as stores:
        await stores.workers.join(worker_record(num_lanes=8))
        yield stores


async def answer(stores: Stores, command: list[Any], text: str) -> Any:
    return await stores.redis.call(lambda redis: redis.execute_command("EVAL", text, *command[2:]))


async def test_each_call_has_its_keys_and_arguments_and_no_others(stores: Stores) -> None:
    calls: list[Any] = [
        (["a", "b", "c"], {"word": "1", "words": ["2", "3"]}),
        (["d"], {"word": "4", "words": []}),
        (["e", "f"], {"word": "5", "words": ["6"]}),
    ]
    told = [["a1", "b c", "2 3"], ["d4", "", ""], ["e5", "f", "6"]]
    for call, each in zip(calls, told, strict=True):
        assert await answer(stores, evalsha(TELLING, *call), TELLING.text) == each
    as_redis_has_them = [(keys, arranged(TELLING, arguments)) for keys, arguments in calls]
    for some in range(4):
        assert await answer(stores, together(TELLING, as_redis_has_them[:some]), TELLING.together) == told[:some]


async def begun(stores: Stores, *names: str) -> list[JournalPart]:
    """Parts of two tokens for sessions whose answers run."""
    parts = []
    for number, name in enumerate(names):
        begun = await stores.sessions.begin_operation(await stores.opened(name), RUN, Intent("generate", {}))
        parts.append(JournalPart(begun.record, RUN, 0, [number, number + 1], 1000))
    return parts


async def test_more_calls_than_run_together_are_several_commands(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_CALLS_TOGETHER", 2)
    parts = await begun(stores, "one", "two", "three", "four", "five")
    await stores.sessions.extend_journals(parts[:1])  # the server knows the script then
    before = await num_scripts(stores)
    answers = await stores.sessions.extend_journals(parts)
    assert await num_scripts(stores) - before == 3
    assert [each.length for each in answers if isinstance(each, JournalEnd)] == [2] * 5
    assert len({each.digest for each in answers if isinstance(each, JournalEnd)}) == 5
    for part in parts:
        assert unpack(await stores.redis.read_bytes(KEYS.journal(part.record.session_id), 0, 99)) == part.token_ids


async def test_what_was_written_before_one_failed_is_not_written_again(stores: Stores) -> None:
    parts = await begun(stores, "one", "two", "three")
    await stores.redis.call(lambda redis: redis.lpush(KEYS.journal(parts[1].record.session_id), "no string"))
    first, failed, last = await stores.sessions.extend_journals(parts)
    assert "WRONGTYPE" in str(failed)
    assert [each.outcome for each in (first, last) if isinstance(each, JournalEnd)] == [ExtendJournal.EXTENDED] * 2
    for part in parts[::2]:
        assert unpack(await stores.redis.read_bytes(KEYS.journal(part.record.session_id), 0, 99)) == part.token_ids


async def num_scripts(stores: Stores) -> int:
    found = await stores.redis.call(lambda redis: redis.info("commandstats"))
    return sum(found.get(name, {"calls": 0})["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval"))
