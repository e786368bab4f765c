"""The operators' service: quotas, tenants, everybody's sessions, workers; and the line that each action leaves."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from kakeya_router.access import audit
from kakeya_router.api import admin_service, registry_service, runtime_service
from kakeya_router.api.admin_service import AdminService
from kakeya_router.store.access.credential_store import CredentialStore
from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import CredentialNotFound, InvalidField, KakeyaError, SessionNotFound, StoreUnavailable
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from kakeya_stubs.v1 import runtime_pb2
from kakeya_stubs.worker.v1 import registry_pb2
from tests.redis_server import RedisServer
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, LANE_BYTES
from tests.unit.router.keyed import KEYED, Keyed, keyed_on
from tests.unit.router.stack import Client, Stack, answer, eventually

SERVED: dict[str, ServiceDescriptor] = {
    descriptor.full_name: descriptor
    for module in (runtime_pb2, pb, registry_pb2)
    for descriptor in module.DESCRIPTOR.services_by_name.values()
}


def test_the_walk_over_all_services_leaves_none_out() -> None:
    assert SERVED.keys() == {runtime_service.SERVICE, admin_service.SERVICE, registry_service.SERVICE}


def _in_another_thread(address: str) -> list[str]:
    with grpc.insecure_channel(address) as channel:
        return list(ProtoReflectionDescriptorDatabase(channel).get_services())


async def test_no_method_of_any_service_is_open_except_health_and_reflection(keyed: Keyed) -> None:
    services = await asyncio.to_thread(_in_another_thread, keyed.address)
    assert {name for name in services if name.startswith("kakeya.")} == SERVED.keys()
    for service, descriptor in SERVED.items():
        for method in descriptor.methods:
            call: Any = keyed.nobody.channel.unary_unary(f"/{service}/{method.name}")
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(b"")
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.full_name
    health = health_pb2_grpc.HealthStub(keyed.nobody.channel)
    await health.Check(health_pb2.HealthCheckRequest())


async def _set_quota(admin: Client, tenant: str, quota: pb.Quota | None) -> pb.Tenant:
    return (await answer(admin.admin.SetQuota(pb.SetQuotaRequest(tenant=tenant, quota=quota)))).tenant


async def _tenants(admin: Client) -> dict[str, pb.Tenant]:
    response = await answer(admin.admin.ListTenants(pb.ListTenantsRequest()))
    assert [tenant.name for tenant in response.tenants] == sorted(tenant.name for tenant in response.tenants)
    return {tenant.name: tenant for tenant in response.tenants}


async def _page(admin: Client, **fields: Any) -> pb.ListSessionsResponse:
    return await answer(admin.admin.ListSessions(pb.ListSessionsRequest(**fields)))


async def _sessions(admin: Client, **fields: Any) -> list[pb.Session]:
    """Of all pages."""
    sessions: list[pb.Session] = []
    token = ""
    while True:
        page = await _page(admin, page_token=token, **fields)
        sessions += page.sessions
        token = page.next_page_token
        if not token:
            return sessions


async def test_a_tenant_has_the_defaults_until_it_has_a_quota_of_its_own(redis_url: str) -> None:
    async with keyed_on(redis_url, tenant_max_sessions=3, tenant_max_bytes=4, tenant_tokens_per_minute=5) as keyed:
        defaults = pb.Quota(max_sessions=3, max_reserved_bytes=4, tokens_per_minute=5)
        await keyed.key("acme")
        assert await _tenants(keyed.admin) == {"acme": pb.Tenant(name="acme", quota=defaults)}
        own = pb.Quota(max_sessions=1 << 53)
        for name in ("acme", "zeta"):
            assert await _set_quota(keyed.admin, name, own) == pb.Tenant(name=name, quota=own, has_own_quota=True)
        assert (await _tenants(keyed.admin)).keys() == {"acme", "zeta"}
        assert await _set_quota(keyed.admin, "acme", pb.Quota()) == pb.Tenant(
            name="acme", quota=pb.Quota(), has_own_quota=True
        )
        assert await _set_quota(keyed.admin, "acme", None) == pb.Tenant(name="acme", quota=defaults)
        await _set_quota(keyed.admin, "zeta", None)
        assert (await _tenants(keyed.admin)).keys() == {"acme"}
        assert not await keyed.stack.redis.exists("kakeya:{access}:tenants")


@pytest.mark.parametrize(
    ("tenant", "quota", "field"),
    [
        ("", pb.Quota(), "tenant"),
        ("A", None, "tenant"),
        ("acme", pb.Quota(max_sessions=(1 << 53) + 1), "quota"),
        ("acme", pb.Quota(max_reserved_bytes=(1 << 64) - 1), "quota"),
        ("acme", pb.Quota(tokens_per_minute=(1 << 64) - 1), "quota"),
    ],
)
async def test_a_quota_that_makes_no_sense_is_refused(
    keyed: Keyed, tenant: str, quota: pb.Quota | None, field: str
) -> None:
    with pytest.raises(InvalidField) as raised:
        await _set_quota(keyed.admin, tenant, quota)
    assert raised.value.metadata["field"] == field


async def test_tenants_are_listed_with_what_they_use_in_each_pool(keyed: Keyed) -> None:
    await keyed.worker()
    await keyed.worker(worker_id="worker-b", pool="small", model="Small")
    acme, zeta = await keyed.tenant("acme"), await keyed.tenant("zeta")
    for client, model in ((acme, "Tiny"), (acme, "Tiny"), (acme, "Small"), (zeta, "Tiny")):
        await client.session(model=model)
    tenants = await _tenants(keyed.admin)
    assert {name: list(tenant.usage) for name, tenant in tenants.items()} == {
        "acme": [
            pb.PoolUsage(pool="small", num_sessions=1, reserved_bytes=LANE_BYTES),
            pb.PoolUsage(pool="tiny", num_sessions=2, reserved_bytes=2 * LANE_BYTES),
        ],
        "zeta": [pb.PoolUsage(pool="tiny", num_sessions=1, reserved_bytes=LANE_BYTES)],
    }


async def test_sessions_of_all_tenants_are_listed(keyed: Keyed) -> None:
    worker = await keyed.worker()
    made = await keyed.key("acme")
    acme, zeta = keyed.client(made.secret), await keyed.tenant("zeta")
    idle = await acme.session(client_label="the first")
    await acme.append(idle, [1, 2])
    busy = await zeta.session()
    worker.flowing.clear()
    appending = asyncio.create_task(zeta.append(busy, [1]))
    await eventually(lambda: _is_busy(keyed, busy))
    listed = {session.session_id: session for session in await _sessions(keyed.admin)}
    worker.flowing.set()
    await appending
    assert listed.keys() == {idle, busy}
    first = listed[idle]
    assert first.idle_seconds >= 0
    first.idle_seconds = 0
    first.ClearField("lane")  # which a heartbeat may have said by now
    assert first == pb.Session(
        session_id=idle,
        tenant="acme",
        key_id=made.key.key_id,
        client_label="the first",
        model="Tiny",
        pool="tiny",
        worker_id="worker-a",
        state="open",
        history_length=2,
        reserved_bytes=LANE_BYTES,
        kv_live_bytes=2 * BYTES_PER_TOKEN,
        sink=worker.sink,
        window=worker.window,
        retained=[pb.HistoryRange(start=0, end=2)],
    )
    assert listed[busy].busy
    assert listed[busy].idle_seconds == 0
    assert [session.session_id for session in await _sessions(keyed.admin, tenant="acme")] == [idle]


async def _is_busy(keyed: Keyed, session_id: str) -> bool:
    return bool(await keyed.stack.redis.exists(f"kakeya:{{tiny}}:op:{session_id}"))


async def test_many_sessions_come_in_pages_over_all_pools(stack: Stack, client: Client) -> None:
    for number, pool in enumerate(("aa", "bb", "cc")):
        await stack.worker(client, f"worker-{pool}", pool=pool, model=pool, num_lanes=200 if number == 1 else 2)
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(client.session(model=model)) for model in ["aa", "cc"] * 2 + ["bb"] * 200]
    ids = {task.result() for task in made}
    listed = [session.session_id for session in await _sessions(client, page_size=50)]
    assert set(listed) == ids
    assert len(listed) == len(ids)
    assert {session.pool for session in await _sessions(client, pool="bb")} == {"bb"}
    assert len((await _page(client, pool="bb", page_size=50)).sessions) < 200
    page = await _page(client, page_token="aaa.7")
    assert {session.pool for session in page.sessions} == {"bb"}, "that pool is gone: the next one is begun"
    assert await _page(client, page_token="zz.7") == pb.ListSessionsResponse()


async def test_nothing_is_listed_where_nothing_is(client: Client) -> None:
    assert await _page(client) == pb.ListSessionsResponse()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"page_size": 1001}, "page_size"),
        ({"page_token": "tiny"}, "page_token"),
        ({"page_token": "tiny.-1"}, "page_token"),
        ({"page_token": "tiny." + "9" * 20}, "page_token"),
        ({"page_token": "tiny.1\n"}, "page_token"),
        ({"tenant": "No Tenant"}, "tenant"),
        ({"pool": "No Pool"}, "pool"),
    ],
)
async def test_a_list_that_makes_no_sense_is_refused(client: Client, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as raised:
        await _page(client, **fields)
    assert raised.value.metadata["field"] == field


async def test_any_cursor_may_be_asked_for(keyed: Keyed) -> None:
    await keyed.worker()
    await _page(keyed.admin, page_token="tiny." + "9" * 19)


async def test_keys_of_no_tenant_can_be_asked_for(client: Client) -> None:
    with pytest.raises(InvalidField):
        await answer(client.admin.ListKeys(pb.ListKeysRequest(tenant="No Tenant")))


async def _close(admin: Client, session_id: str) -> int:
    response = await answer(admin.admin.CloseSession(pb.CloseSessionRequest(session_id=session_id)))
    return int(response.final_history_length)


async def test_an_operator_closes_anybodys_session(keyed: Keyed) -> None:
    worker = await keyed.worker()
    acme = await keyed.tenant("acme")
    session_id = await acme.session()
    await acme.append(session_id, [1, 2, 3])
    assert await _close(keyed.admin, session_id) == 3
    assert not worker.lanes
    with pytest.raises(SessionNotFound):
        await acme.info(session_id)
    for gone in (session_id, "", "x" * 10_000, "tiny.\0"):
        with pytest.raises(SessionNotFound):
            await _close(keyed.admin, gone)


async def test_every_action_leaves_one_line(keyed: Keyed) -> None:
    await keyed.worker()
    acme = await keyed.key("acme")
    client = keyed.client(acme.secret)
    session_id = await client.session()
    admin_key = await keyed.key("ops", scopes=[pb.SCOPE_ADMIN])
    admin = keyed.client(admin_key.secret)
    with structlog.testing.capture_logs() as lines:
        made = await answer(admin.admin.CreateKey(pb.CreateKeyRequest(tenant="zeta")))
        await answer(admin.admin.RevokeKey(pb.RevokeKeyRequest(key_id=made.key.key_id)))
        token = await answer(admin.admin.CreateToken(pb.CreateTokenRequest()))
        await answer(admin.admin.RevokeToken(pb.RevokeTokenRequest(token_id=token.token.token_id)))
        await _set_quota(admin, "zeta", pb.Quota(max_sessions=1))
        await _close(admin, session_id)
        await _sessions(admin)
    assert _audited(lines) == [
        ("key.create", f"key:{made.key.key_id} tenant:zeta", "done", "ops", admin_key.key.key_id),
        ("key.revoke", f"key:{made.key.key_id} tenant:zeta", "done", "ops", admin_key.key.key_id),
        ("token.create", f"token:{token.token.token_id}", "done", "ops", admin_key.key.key_id),
        ("token.revoke", f"token:{token.token.token_id}", "done", "ops", admin_key.key.key_id),
        ("quota.set", "tenant:zeta", "done", "ops", admin_key.key.key_id),
        ("session.close", f"session:{session_id}", "done", "ops", admin_key.key.key_id),
    ]


def _audited(lines: Sequence[Any]) -> list[tuple[str, str, str, str, str]]:
    names = ("action", "subject", "outcome", "actor_tenant", "actor_key_id")
    return [tuple(line[name] for name in names) for line in lines if line["event"] == "audit"]


async def test_what_was_refused_leaves_a_line_too(keyed: Keyed) -> None:
    made = await keyed.key("acme")
    client = keyed.client(made.secret)
    method = "call /kakeya.admin.v1.AdminService/"
    with structlog.testing.capture_logs() as lines:
        for call in (
            lambda: client.workers(),
            lambda: keyed.nobody.workers(),
            lambda: answer(keyed.admin.admin.RevokeKey(pb.RevokeKeyRequest(key_id="0123456789ab"))),
            lambda: answer(keyed.admin.admin.RevokeToken(pb.RevokeTokenRequest(token_id="not\nan id"))),
            lambda: answer(keyed.admin.admin.CreateKey(pb.CreateKeyRequest(tenant="Not A Tenant"))),
            lambda: _close(keyed.admin, "tiny.gone"),
        ):
            with pytest.raises(KakeyaError):
                await call()
    operator = ("operator", "admin-key")
    assert _audited(lines) == [
        (f"{method}ListWorkers", "", "PERMISSION_DENIED", "acme", made.key.key_id),
        (f"{method}ListWorkers", "", "UNAUTHENTICATED", "", ""),
        ("key.revoke", "key:0123456789ab", "CREDENTIAL_NOT_FOUND", *operator),
        ("token.revoke", "", "CREDENTIAL_NOT_FOUND", *operator),
        ("key.create", "", "INVALID_FIELD", *operator),
        ("session.close", "session:tiny.gone", "SESSION_NOT_FOUND", *operator),
    ]


async def test_what_went_wrong_is_audited_as_well(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with keyed_on(own_redis.url) as keyed:
        await keyed.key()
        own_redis.stop()
        with structlog.testing.capture_logs() as lines, pytest.raises(StoreUnavailable):
            await keyed.key("acme")
        ((action, subject, *rest),) = _audited(lines)  # the key may have been made all the same
        assert (action, rest) == ("key.create", ["STORE_UNAVAILABLE", "operator", "admin-key"])
        assert re.fullmatch(r"key:[0-9a-f]{12} tenant:acme", subject)
        with structlog.testing.capture_logs() as lines, pytest.raises(grpc.aio.AioRpcError) as raised:
            monkeypatch.setattr("kakeya_router.contract.admin_requests.lifetime_ms", lambda _: 1 / 0)
            await keyed.admin.admin.CreateKey(pb.CreateKeyRequest(tenant="acme"))
        error = error_details.decode(raised.value)
        assert error is not None
        assert error.reason == "INTERNAL"
        assert _audited(lines) == [("key.create", "", "INTERNAL", "operator", "admin-key")]


@pytest.mark.parametrize("noun", ["key", "token"])
async def test_what_a_vanished_operator_began_is_completed_and_audited(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, noun: str
) -> None:
    begun, gone, released = asyncio.Event(), asyncio.Event(), asyncio.Event()
    rpc = f"Create{noun.title()}"
    create, serve = CredentialStore.create, getattr(AdminService, rpc)

    async def held(*arguments: Any) -> Any:
        begun.set()
        await released.wait()
        return await create(*arguments)

    async def served(*arguments: Any) -> Any:
        try:
            return await serve(*arguments)
        finally:
            gone.set()

    monkeypatch.setattr(CredentialStore, "create", held)
    monkeypatch.setattr(AdminService, rpc, served)
    async with keyed_on(redis_url) as keyed:
        with structlog.testing.capture_logs() as lines:
            call = getattr(keyed.admin.admin, rpc)(getattr(pb, f"{rpc}Request")(**_owner(noun)))
            await begun.wait()
            call.cancel()
            await gone.wait()
            released.set()
            ((_, subject, outcome, tenant, _),) = await eventually(lambda: _until_audited(lines))
        made = await answer(
            getattr(keyed.admin.admin, f"List{noun.title()}s")(getattr(pb, f"List{noun.title()}sRequest")())
        )
        ids = [getattr(one, f"{noun}_id") for one in getattr(made, f"{noun}s")]
    assert [subject.partition(" ")[0].removeprefix(f"{noun}:")] == ids
    assert (outcome, tenant) == ("done", "operator")


def _owner(noun: str) -> dict[str, str]:
    return {"tenant": "acme"} if noun == "key" else {}


async def _until_audited(lines: Sequence[Any]) -> list[tuple[str, str, str, str, str]]:
    return _audited(lines)


async def test_what_is_broken_off_says_so() -> None:
    begun = asyncio.Event()

    async def act() -> None:
        with audit.action("key.create", "key:0123456789ab"):
            begun.set()
            await asyncio.Event().wait()

    with structlog.testing.capture_logs() as lines:
        task = asyncio.create_task(act())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    assert _audited(lines) == [("key.create", "key:0123456789ab", "CANCELLED", "", "")]


async def test_where_no_keys_are_asked_for_operators_need_none(client: Client) -> None:
    made = await answer(client.admin.CreateKey(pb.CreateKeyRequest(tenant="acme")))
    assert list((await answer(client.admin.ListKeys(pb.ListKeysRequest()))).keys) == [made.key]
    with pytest.raises(CredentialNotFound):
        await answer(client.admin.RevokeKey(pb.RevokeKeyRequest()))


async def test_keys_hold_on_routers_that_start_later(stack: Stack, client: Client) -> None:
    made = await answer(client.admin.CreateKey(pb.CreateKeyRequest(tenant="acme", scopes=[pb.SCOPE_ADMIN])))
    later = await stack.router(**KEYED)
    assert not await stack.client(later.address, made.secret).workers()
