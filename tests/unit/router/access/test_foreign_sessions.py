"""A session belongs to its tenant: for everybody else it is as if it had never been."""

import random
import string
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from kakeya_router.store.keys import new_session_id
from kakeya_router.store.session_record import PoolName
from kakeya_shared.errors.tree import SessionNotFound
from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import Keyed, keyed_on
from tests.unit.router.stack import Client, Stack, answer

SERVICE = api.DESCRIPTOR.services_by_name["RuntimeService"]
ON_A_SESSION = [method for method in SERVICE.methods if "session_id" in method.input_type.fields_by_name]
# Beside the session id, what makes each request a good one.
FIELDS: dict[str, dict[str, Any]] = {
    "AppendTokens": {"token_ids": [1, 2]},
    "FindSession": {"tags": [bytes(32)]},
    "Generate": {"max_tokens": 2},
    "TagTurn": {"place": {"kind": api.PLACE_KIND_HEAD, "history_length": 1}, "tags": [bytes(32)]},
}


@pytest.fixture
async def worker(keyed: Keyed) -> FakeWorker:
    return await keyed.worker()


def test_the_walk_over_all_rpcs_leaves_none_out() -> None:
    others = {method.name for method in SERVICE.methods} - {method.name for method in ON_A_SESSION}
    on_objects = {"StoreObject", "FetchObject", "UpdateObject", "DeleteObject"}  # test_objects.py
    assert others == {"CreateSession", "ForkSession", "ListModels", "ListSessions", "Turn"} | on_objects, (
        "an rpc without a session id needs a test of its own"
    )


async def _refusal(client: Client, method: Any, session_id: str) -> tuple[Any, ...]:
    """All that a client can see of a refusal."""
    request: Message = getattr(api, method.input_type.name)(session_id=session_id, **FIELDS.get(method.name, {}))
    call = getattr(client.runtime, method.name)(request)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        if method.server_streaming:
            [response async for response in call]
        else:
            await call
    error = raised.value
    return error.code(), error.details(), tuple(error.initial_metadata() or ()), tuple(error.trailing_metadata() or ())


async def _everything(stack: Stack) -> dict[str, Any]:
    """What Redis holds, without what passes by itself."""
    content: dict[str, Any] = {}
    for name in await stack.keys():
        kind = await stack.redis.type(name)
        if ":worker" in name or name == "kakeya:routers":
            continue
        read = {"hash": "hgetall", "set": "smembers", "string": "get"}.get(kind)
        content[name] = (
            await getattr(stack.redis, read)(name) if read else await stack.redis.zrange(name, 0, -1, withscores=True)
        )
        if kind == "hash":
            content[name].pop("lane_place", None)  # comes with a heartbeat
    return content


@pytest.mark.parametrize("method", ON_A_SESSION, ids=lambda method: method.name)
async def test_a_foreign_session_answers_as_one_that_never_was(keyed: Keyed, worker: FakeWorker, method: Any) -> None:
    owner, stranger = await keyed.tenant("acme"), await keyed.tenant("zeta")
    session_id = await owner.session()
    await owner.append(session_id, [5])
    before, calls = await _everything(keyed.stack), dict(worker.calls)
    unknown = await _refusal(stranger, method, new_session_id(PoolName("tiny")))
    foreign = await _refusal(stranger, method, session_id)
    assert foreign == unknown
    assert foreign[:2] == (grpc.StatusCode.NOT_FOUND, "no such session: unknown, closed or expired")
    assert await _everything(keyed.stack) == before, "nothing is touched, also no idle time"
    assert dict(worker.calls) == calls
    assert (await owner.info(session_id)).history_length == 1


@pytest.mark.parametrize("method", ON_A_SESSION, ids=lambda method: method.name)
async def test_ids_that_no_router_issues_answer_the_same(keyed: Keyed, worker: FakeWorker, method: Any) -> None:
    client = await keyed.tenant("acme")
    unknown = await _refusal(client, method, new_session_id(PoolName("tiny")))
    session_id = await client.session()
    hostile = [
        "",
        "tiny",
        "tiny.",
        ".x",
        "x" * 100_000,
        f"{session_id}\0",
        f"{session_id}\n",
        f" {session_id}",
        "tiny.*",
        "tiny.é",
        "{tiny}.x",
        "tiny.x:y",
        "t" * 100 + "." + "x" * 29,
    ]
    for other in hostile:
        if other or method.name != "FindSession":  # which without an id looks at all of the caller's
            assert await _refusal(client, method, other) == unknown, other


async def test_an_id_that_no_router_issues_is_not_asked_of_redis(keyed: Keyed) -> None:
    client = await keyed.tenant("acme")
    long = "t" * 100 + "." + "x" * 29
    await keyed.stack.redis.hset(f"kakeya:{{{'t' * 100}}}:session:{long}", "nonsense", "1")  # reading it would fail
    with pytest.raises(SessionNotFound):
        await client.info(long)


async def test_guessed_ids_and_near_misses_all_answer_the_same(keyed: Keyed, worker: FakeWorker) -> None:
    owner, stranger = await keyed.tenant("acme"), await keyed.tenant("zeta")
    session_id = await owner.session()
    (info,) = [method for method in ON_A_SESSION if method.name == "GetSessionInfo"]
    unknown = await _refusal(stranger, info, session_id)
    alphabet = string.ascii_letters + string.digits + "-_"
    dice = random.Random(4)
    for guess in range(1000):
        at = dice.randrange(len("tiny."), len(session_id))
        near = session_id[:at] + dice.choice(alphabet) + session_id[at + 1 :]
        other = new_session_id(PoolName("tiny")) if guess % 2 else near
        assert await _refusal(stranger, info, other) == unknown


async def test_a_request_id_is_its_tenants_own(keyed: Keyed, worker: FakeWorker) -> None:
    owner, stranger = await keyed.tenant("acme"), await keyed.tenant("zeta")
    first = await owner.session(request_id="the same")
    second = await stranger.session(request_id="the same")
    assert first != second
    assert await owner.session(request_id="the same") == first
    assert await stranger.session(request_id="the same") == second


async def test_a_worker_is_told_whose_session_it_is(keyed: Keyed, worker: FakeWorker) -> None:
    sessions = {tenant: await (await keyed.tenant(tenant)).session() for tenant in ("acme", "zeta")}
    assert {tenant: worker.lanes[session_id].tenant for tenant, session_id in sessions.items()} == {
        "acme": "acme",
        "zeta": "zeta",
    }


async def test_all_keys_of_a_tenant_share_its_sessions(keyed: Keyed, worker: FakeWorker) -> None:
    one, other = await keyed.tenant("acme"), await keyed.tenant("acme")
    session_id = await one.session()
    assert (await other.append(session_id, [1])).history_length == 1
    assert await other.close(session_id) == 1


async def test_keys_of_the_service_for_operators_open_no_foreign_session(keyed: Keyed, worker: FakeWorker) -> None:
    session_id = await (await keyed.tenant("acme")).session()
    operator = await keyed.tenant("ops", scopes=[admin_pb2.SCOPE_ADMIN, admin_pb2.SCOPE_SESSIONS])
    for client in (operator, keyed.admin):
        with pytest.raises(SessionNotFound):
            await client.info(session_id)


async def test_sessions_of_tenants_are_nobodys_where_no_keys_are_asked_for(redis_url: str) -> None:
    async with keyed_on(redis_url) as keyed:
        await keyed.worker()
        session_id = await (await keyed.tenant("acme")).session()
        open_router = await keyed.stack.router()
        with pytest.raises(SessionNotFound):
            await open_router.info(session_id)
        of_nobody = await open_router.session()
        with pytest.raises(SessionNotFound):
            await keyed.admin.info(of_nobody)
        response = await answer(open_router.runtime.GetSessionInfo(api.GetSessionInfoRequest(session_id=of_nobody)))
        assert response.state == api.SESSION_STATE_OPEN
