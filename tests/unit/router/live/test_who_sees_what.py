"""A tenant's key sees its own sessions and the sums over all; texts and tokens are shown to nobody."""

import asyncio
from types import SimpleNamespace

import pytest

from kakeya_router.live import board as boards
from kakeya_shared.errors.tree import PermissionDenied, Unauthenticated
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import Keyed
from tests.unit.router.live.watching import Viewer, viewing
from tests.unit.router.stack import answer


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards.Board, "tick_seconds", 0.02)
    monkeypatch.setattr(boards.Board, "quiet_seconds", 0.1)


@pytest.fixture
async def worker(keyed: Keyed) -> FakeWorker:
    return await keyed.worker(num_lanes=2)


async def test_a_tenant_sees_its_own_sessions_and_the_sums(keyed: Keyed, worker: FakeWorker) -> None:
    acme, other = await keyed.tenant("acme"), await keyed.tenant("other")
    mine, foreign = await acme.session(client_label="mine"), await other.session(client_label="secret-plans")
    async with viewing(acme) as viewer, viewing(keyed.admin) as operator:
        assert viewer.sessions.keys() == {mine}
        assert viewer.sessions[mine].tenant == "acme"
        assert operator.sessions.keys() == {mine, foreign}
        assert not viewer.workers
        assert "worker-a" in operator.workers
        assert viewer.fleet == operator.fleet
        assert viewer.fleet.num_lanes_held == 2
        await other.append(foreign, [1, 2])
        await operator.until(lambda operator: operator.sessions[foreign].history_length == 2)
        await other.close(foreign)
        await operator.until(lambda operator: foreign not in operator.sessions)
        await viewer.until(lambda viewer: viewer.fleet.num_lanes_held == 1)
    for name in (foreign, "secret-plans", "other", "worker-a\n", worker.incarnation):
        assert name not in viewer.texts, name


async def test_a_tenant_sees_of_the_queue_its_own_calls_and_the_sum(keyed: Keyed) -> None:
    queueing = keyed.client("", await keyed.router(admission="queue", queue_seconds=60))
    await keyed.worker(num_lanes=1)
    acme, other = [keyed.client((await keyed.key(tenant)).secret, queueing.address) for tenant in ("acme", "other")]
    holder = await acme.session()
    waiting = [asyncio.create_task(client.session()) for client in (acme, other)]
    async with viewing(acme) as viewer, viewing(keyed.admin) as operator:
        await operator.until(lambda operator: operator.queues["tiny"].num_waiting == 2)
        assert [each.tenant for each in operator.queues["tiny"].tenants] == ["acme", "other"]
        await viewer.until(lambda viewer: viewer.queues["tiny"].num_waiting == 2)
        assert [(each.tenant, each.num_waiting) for each in viewer.queues["tiny"].tenants] == [("acme", 1)]
    await acme.close(holder)
    first, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert len(first) == 1
    for task in waiting:
        task.cancel()


async def test_without_a_good_key_nobody_sees_anything(keyed: Keyed, worker: FakeWorker) -> None:
    for client in (keyed.nobody, keyed.joiner, keyed.client("kakeya_key_0123456789ab_" + "x" * 43)):
        with pytest.raises(Unauthenticated):
            await Viewer(client).next()


async def test_the_rest_of_the_service_stays_closed_to_tenants(keyed: Keyed, worker: FakeWorker) -> None:
    acme = await keyed.tenant("acme")
    with pytest.raises(PermissionDenied):
        await answer(acme.admin.ListSessions(pb.ListSessionsRequest()))
    with pytest.raises(PermissionDenied):
        await answer(acme.admin.ListWorkers(pb.ListWorkersRequest()))


async def test_an_operators_own_key_with_both_scopes_sees_all(keyed: Keyed, worker: FakeWorker) -> None:
    both = await keyed.tenant("acme", scopes=[pb.SCOPE_SESSIONS, pb.SCOPE_ADMIN])
    foreign = await (await keyed.tenant("other")).session()
    async with viewing(both) as viewer:
        assert foreign in viewer.sessions


async def test_a_revoked_key_sees_no_more(keyed: Keyed, worker: FakeWorker) -> None:
    key = await keyed.key("acme")
    async with viewing(keyed.client(key.secret)) as viewer:
        await keyed.revoke(key.key.key_id)
        with pytest.raises(Unauthenticated):
            await viewer.until(lambda _: False)


def test_no_field_could_hold_a_text_or_a_token() -> None:
    """Of what sessions hold, a viewer is told lengths."""
    fields = {field.name for field in pb.Session.DESCRIPTOR.fields}
    assert not {name for name in fields if "token" in name or "text" in name or "boundar" in name}


async def test_what_a_viewer_may_not_see_is_no_news() -> None:
    class Bulletin:
        async def unseen(self, seen: int | None) -> SimpleNamespace:
            return SimpleNamespace(version=(seen or 0) + 1)

    class Sight:
        def news(self, unseen: SimpleNamespace) -> SimpleNamespace:
            return SimpleNamespace(begins=False, is_empty=unseen.version < 3, version=unseen.version)

    news = await boards.next_news(Bulletin(), Sight(), 0)  # type: ignore[arg-type]  # what they are asked for
    assert news.version == 3
