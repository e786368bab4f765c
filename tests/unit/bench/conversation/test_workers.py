"""What a bench learns of the workers, from a real server."""

import asyncio
import threading
from collections.abc import Iterator

import grpc
import pytest

from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.flags.connection import Connection
from kakeya_bench.conversation.runtime import FRESH_SECONDS, Workers
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.bench.conversation.own_clock import OwnClock
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import fails


@pytest.fixture
def admin() -> Iterator[ScriptedAdmin]:
    admin = ScriptedAdmin()
    admin.workers = [pb.WorkerStatus(worker_id="one", rss_bytes=100), pb.WorkerStatus(worker_id="two", rss_bytes=200)]
    yield admin
    admin.stop()


@pytest.fixture
def workers(admin: ScriptedAdmin) -> Iterator[Workers]:
    with AdminCalls(Connection(admin.address, "kakeya_key_of_an_operator")) as calls:
        yield Workers(calls)


async def test_however_many_ask_the_router_is_asked_once_a_second(
    workers: Workers, admin: ScriptedAdmin, own_clock: OwnClock
) -> None:
    asked = admin.requests["ListWorkers"]
    found = await asyncio.gather(*(workers.find(name) for name in ("one", "two", "three") * 5))
    assert [worker and worker.rss_bytes for worker in found] == [100, 200, None] * 5
    assert len(asked) == 1, "the others have waited for its answer"
    admin.workers[0].rss_bytes = 101
    for num_asked, rss_bytes in ((1, 100), (2, 101), (2, 101), (3, 101)):
        own_clock.go_on(0.5)
        found = await asyncio.gather(*(workers.find("one") for _ in range(5)))
        assert [worker and worker.rss_bytes for worker in found] == [rss_bytes] * 5
        assert len(asked) == num_asked
    assert (FRESH_SECONDS, workers.why_not) == (1.0, "")
    assert admin.metadata["ListWorkers"][0]["authorization"] == "Bearer kakeya_key_of_an_operator"


async def test_others_go_on_while_the_router_thinks(workers: Workers, admin: ScriptedAdmin) -> None:
    going_on = threading.Event()

    def thinks(context: grpc.ServicerContext) -> None:
        assert going_on.wait(60)

    admin.before["ListWorkers"].append(thinks)
    finding = asyncio.create_task(workers.find("one"))
    await asyncio.sleep(0.05)
    assert not finding.done()
    going_on.set()
    assert await finding is not None


async def test_whoever_is_no_operator_is_told_why_nothing_is_known(
    workers: Workers, admin: ScriptedAdmin, own_clock: OwnClock
) -> None:
    assert await workers.find("one") is not None
    own_clock.go_on(1.0)
    admin.before["ListWorkers"].append(fails("PERMISSION_DENIED"))
    assert await workers.find("one") is None, "what was known is too old"
    assert workers.why_not == "the router does not list its workers: scripted PERMISSION_DENIED"
    own_clock.go_on(0.5)
    assert await workers.find("one") is None
    assert len(admin.requests["ListWorkers"]) == 2, "a refusal is not asked for again at once, either"
    own_clock.go_on(0.5)
    assert (await workers.find("one") is not None, workers.why_not) == (True, "")
    del admin.workers[0]
    own_clock.go_on(1.0)
    assert (await workers.find("one"), workers.why_not) == (None, ""), "it has left"
