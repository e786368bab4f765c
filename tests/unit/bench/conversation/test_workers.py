"""What a bench learns of the workers, from a real server."""

import asyncio
import threading
from collections.abc import Iterator

import grpc
import pytest

from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.flags.connection import Connection
from kakeya_bench.conversation import workers as module
from kakeya_bench.conversation.workers import FRESH_SECONDS, Workers
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import fails


class _Clock:
    """Stands in for the module `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


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


async def test_each_is_found_by_its_id(workers: Workers, admin: ScriptedAdmin) -> None:
    for worker_id, rss_bytes in (("one", 100), ("two", 200)):
        found = await workers.find(worker_id)
        assert found is not None
        assert found.rss_bytes == rss_bytes
    assert await workers.find("three") is None
    assert workers.why_not == ""
    assert admin.metadata["ListWorkers"][0]["authorization"] == "Bearer kakeya_key_of_an_operator"


async def test_however_many_ask_the_router_is_asked_once_a_second(
    workers: Workers, admin: ScriptedAdmin, clock: _Clock
) -> None:
    asked = admin.requests["ListWorkers"]
    found = await asyncio.gather(*(workers.find("one") for _ in range(20)))
    assert [worker.rss_bytes for worker in found if worker] == [100] * 20
    assert len(asked) == 1, "the others have waited for its answer"
    admin.workers[0].rss_bytes = 101
    for now, num_asked, rss_bytes in ((0.5, 1, 100), (0.99, 1, 100), (1.0, 2, 101), (1.5, 2, 101), (2.0, 3, 101)):
        clock.now = now
        found = await asyncio.gather(*(workers.find("one") for _ in range(5)))
        assert [worker.rss_bytes for worker in found if worker] == [rss_bytes] * 5
        assert len(asked) == num_asked
    assert FRESH_SECONDS == 1


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
    workers: Workers, admin: ScriptedAdmin, clock: _Clock
) -> None:
    assert await workers.find("one") is not None
    clock.now = 1.0
    admin.before["ListWorkers"].append(fails("PERMISSION_DENIED"))
    assert await workers.find("one") is None, "what was known is too old"
    assert workers.why_not == "the router does not list its workers: scripted PERMISSION_DENIED"
    clock.now = 1.5
    assert await workers.find("one") is None
    assert len(admin.requests["ListWorkers"]) == 2, "a refusal is not asked for again at once, either"
    clock.now = 2.0
    assert await workers.find("one") is not None
    assert workers.why_not == ""
    del admin.workers[0]
    clock.now = 3.0
    assert (await workers.find("one"), workers.why_not) == (None, ""), "it has left"
