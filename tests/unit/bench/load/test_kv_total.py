"""What a level's sessions weigh, by their own word and by their workers'."""

from collections.abc import Awaitable, Callable

import pytest

from kakeya_bench.conversation.runtime import connected
from kakeya_bench.load import level
from kakeya_bench.load.level import KvTotal
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.bench.conversation.playing import PlainSettings
from tests.unit.bench.load.sweeping import Always
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import BYTES_PER_TOKEN, ScriptedRuntime, fails, passes

Weigh = Callable[..., Awaitable[KvTotal]]


@pytest.fixture
def weigh(runtime: ScriptedRuntime) -> Weigh:
    """Opens sessions with so many tokens, and asks for their weight."""

    async def weigh(*histories: int) -> KvTotal:
        async with connected(PlainSettings.parse(["--address", runtime.address])) as (client, workers):
            sessions = [await client.create_session() for _ in histories]
            for session, length in zip(sessions, histories, strict=True):
                await session.append([1] * length)
            return await level.weigh(sessions, workers)

    return weigh


def status(reported: int, age_seconds: float = 0.0, worker_id: str = "scripted") -> pb.WorkerStatus:
    return pb.WorkerStatus(worker_id=worker_id, reported_kv_live_bytes=reported, last_heartbeat_age_seconds=age_seconds)


async def test_the_sessions_and_the_worker_say_how_much(weigh: Weigh, admin: ScriptedAdmin) -> None:
    """A worker of several sessions counts once, and those of others not at all."""
    admin.workers = [status(31_000), status(1_000, worker_id="of others")]
    assert await weigh(3, 10, 99) == KvTotal((3 + 10 + 20) * BYTES_PER_TOKEN, 31_000)
    assert await weigh() == KvTotal(0, 0), "as where the last session was lost"


async def test_it_waits_for_a_heartbeat_after_the_last_turn(weigh: Weigh, admin: ScriptedAdmin) -> None:
    def beats(context: object) -> None:
        admin.workers = [status(2)]

    admin.workers = [status(1, age_seconds=3.0)]
    admin.before["ListWorkers"] += [passes, passes, beats]
    assert (await weigh(1)).workers_bytes == 2
    assert len(admin.requests["ListWorkers"]) == 3


@pytest.mark.parametrize("workers", [[], [status(1, age_seconds=60.0)]], ids=["not listed", "silent"])
async def test_it_does_not_wait_for_ever(weigh: Weigh, admin: ScriptedAdmin, workers: list[pb.WorkerStatus]) -> None:
    admin.workers = workers
    assert await weigh(5) == KvTotal(5 * BYTES_PER_TOKEN, None, "worker scripted does not say")


async def test_a_key_that_is_no_operators(weigh: Weigh, admin: ScriptedAdmin) -> None:
    admin.before["ListWorkers"] = Always([fails("PERMISSION_DENIED")])
    why_not = "the router does not list its workers: scripted PERMISSION_DENIED"
    assert await weigh(5) == KvTotal(5 * BYTES_PER_TOKEN, None, why_not)


async def test_a_session_that_does_not_say(weigh: Weigh, runtime: ScriptedRuntime) -> None:
    runtime.before["GetSessionInfo"] += [passes, fails("INTERNAL")]
    assert await weigh(5, 5) == KvTotal(None, None, "a session does not say: Internal: scripted INTERNAL")
