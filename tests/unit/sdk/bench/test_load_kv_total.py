"""What a level's sessions weigh, by their own word and by their workers'."""

from collections.abc import Iterator

import pytest

from kakeya import AsyncClient
from kakeya.bench import workers as workers_module
from kakeya.bench.load import kv_total
from kakeya.bench.load.kv_total import KvTotal
from kakeya.bench.workers import Workers
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.flags.connection import Connection
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.sdk.bench.sweeping import Always, passes
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import BYTES_PER_TOKEN, ScriptedRuntime, fails


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are asked anew every few milliseconds, and waited for a tenth of a second."""
    for module in (kv_total, workers_module):
        monkeypatch.setattr(module, "FRESH_SECONDS", 0.01)
    monkeypatch.setattr(kv_total, "PATIENCE_SECONDS", 0.1)


@pytest.fixture
def calls(runtime: ScriptedRuntime) -> Iterator[AdminCalls]:
    with AdminCalls(Connection(runtime.address, "", None)) as calls:
        yield calls


def status(reported: int, *, age_seconds: float = 0.0) -> pb.WorkerStatus:
    return pb.WorkerStatus(
        worker_id="scripted", reported_kv_live_bytes=reported, last_heartbeat_age_seconds=age_seconds
    )


async def read(runtime: ScriptedRuntime, calls: AdminCalls, *histories: int) -> KvTotal:
    """Of sessions with so many tokens."""
    async with AsyncClient(runtime.address) as client:
        sessions = [await client.create_session() for _ in histories]
        for session, length in zip(sessions, histories, strict=True):
            await session.append([1] * length)
        return await kv_total.read(sessions, Workers(calls))


async def test_the_sessions_and_the_worker_say_how_much(
    runtime: ScriptedRuntime, admin: ScriptedAdmin, calls: AdminCalls
) -> None:
    admin.workers = [status(31_000)]
    assert await read(runtime, calls, 3, 10, 99) == KvTotal((3 + 10 + 20) * BYTES_PER_TOKEN, 31_000)


async def test_a_worker_of_several_sessions_counts_once(
    runtime: ScriptedRuntime, admin: ScriptedAdmin, calls: AdminCalls
) -> None:
    admin.workers = [status(7), pb.WorkerStatus(worker_id="of others", reported_kv_live_bytes=1_000)]
    assert (await read(runtime, calls, 1, 1)).workers_bytes == 7


async def test_it_waits_for_a_heartbeat_after_the_last_turn(
    runtime: ScriptedRuntime, admin: ScriptedAdmin, calls: AdminCalls
) -> None:
    admin.workers = [status(1, age_seconds=0.9)]

    def beats(context: object) -> None:
        admin.workers = [status(2)]

    admin.before["ListWorkers"] += [passes, passes, beats]
    assert (await read(runtime, calls, 1)).workers_bytes == 2
    assert len(admin.requests["ListWorkers"]) == 3


async def test_it_does_not_wait_for_ever(runtime: ScriptedRuntime, admin: ScriptedAdmin, calls: AdminCalls) -> None:
    admin.workers = [status(1, age_seconds=60.0)]
    assert await read(runtime, calls, 5) == KvTotal(5 * BYTES_PER_TOKEN, None, "worker scripted does not say")


async def test_a_worker_that_is_not_in_the_list(
    runtime: ScriptedRuntime, admin: ScriptedAdmin, calls: AdminCalls
) -> None:
    admin.workers = []
    assert await read(runtime, calls, 5) == KvTotal(5 * BYTES_PER_TOKEN, None, "worker scripted does not say")


async def test_a_key_that_is_no_operators(runtime: ScriptedRuntime, admin: ScriptedAdmin, calls: AdminCalls) -> None:
    admin.before["ListWorkers"] = Always([fails("PERMISSION_DENIED")])
    found = await read(runtime, calls, 5)
    assert (found.sessions_bytes, found.workers_bytes) == (5 * BYTES_PER_TOKEN, None)
    assert found.why_not == "the router does not list its workers: scripted PERMISSION_DENIED"


async def test_a_session_that_does_not_say(runtime: ScriptedRuntime, calls: AdminCalls) -> None:
    runtime.before["GetSessionInfo"] += [passes, fails("INTERNAL")]
    found = await read(runtime, calls, 5, 5)
    assert found == KvTotal(None, None, "a session does not say: Internal: scripted INTERNAL")


async def test_no_sessions_weigh_nothing(runtime: ScriptedRuntime, calls: AdminCalls) -> None:
    """As where the last one was lost."""
    assert await read(runtime, calls) == KvTotal(0, 0)
