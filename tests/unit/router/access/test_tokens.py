"""Join tokens: which workers may join, beat and leave; and what no worker may say of itself."""

import re
from typing import Any

import pytest

from kakeya_shared.errors.tree import (
    CredentialNotFound,
    InvalidField,
    PermissionDenied,
    Unauthenticated,
    UnknownIncarnation,
)
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from kakeya_stubs.worker.v1 import registry_pb2
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import Keyed
from tests.unit.router.stack import Client, Stack, answer, begin_ahead, eventually

UNKNOWN = "no join token, or one that is unknown, revoked or expired"


async def _leave(client: Client, worker: FakeWorker) -> None:
    await answer(client.registry.Leave(worker.leave_request()))


async def _tokens(keyed: Keyed) -> list[pb.Token]:
    return list((await answer(keyed.admin.admin.ListTokens(pb.ListTokensRequest()))).tokens)


async def _revoke(keyed: Keyed, token_id: str) -> pb.Token:
    return (await answer(keyed.admin.admin.RevokeToken(pb.RevokeTokenRequest(token_id=token_id)))).token


async def test_tokens_are_made_listed_and_revoked(keyed: Keyed) -> None:
    first = await keyed.token(pool="tiny", worker_id="worker-a", model="Tiny", label="rack 3", expires_in_seconds=60)
    second = await keyed.token()
    assert re.fullmatch(r"kakeya_join_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", first.secret)
    assert (first.token.pool, first.token.worker_id, first.token.label) == ("tiny", "worker-a", "rack 3")
    assert (first.token.model, second.token.model) == ("Tiny", "")
    assert first.token.expires_at == pytest.approx(first.token.created_at + 60, abs=0.001)
    assert await _tokens(keyed) == [first.token, second.token]
    assert await _revoke(keyed, first.token.token_id) == first.token
    assert await _tokens(keyed) == [second.token]
    for token_id in (first.token.token_id, "", "nothing"):
        with pytest.raises(CredentialNotFound):
            await _revoke(keyed, token_id)


async def test_a_token_lets_a_worker_join_beat_and_leave(keyed: Keyed) -> None:
    client = keyed.client((await keyed.token()).secret)
    worker = await keyed.stack.worker(client, beating=False)
    await client.beat(worker)
    assert "worker-a" in await keyed.admin.workers()
    await _leave(client, worker)
    assert not await keyed.admin.workers()


async def test_without_a_good_token_no_worker_gets_in(keyed: Keyed) -> None:
    worker = await keyed.worker(beating=False)
    key = await keyed.key(scopes=[pb.SCOPE_ADMIN, pb.SCOPE_SESSIONS])
    token = await keyed.token()
    near_miss = token.secret[:-1] + ("A" if token.secret[-1] != "A" else "B")
    for client in (keyed.nobody, keyed.admin, keyed.client(key.secret), keyed.client(near_miss)):
        for call in (client.join(worker), client.beat(worker), _leave(client, worker)):
            with pytest.raises(Unauthenticated) as raised:
                await call
            assert raised.value.message == UNKNOWN
    assert "worker-a" in await keyed.admin.workers()


@pytest.mark.parametrize(
    ("fields", "why"), [({"pool": "other"}, "another pool"), ({"worker_id": "worker-b"}, "another worker")]
)
async def test_a_token_admits_to_its_pool_and_its_worker_only(keyed: Keyed, fields: dict[str, Any], why: str) -> None:
    worker = await keyed.worker(beating=False)
    client = keyed.client((await keyed.token(**fields)).secret)
    for call in (client.join(worker), client.beat(worker), _leave(client, worker)):
        with pytest.raises(PermissionDenied, match=why):
            await call
    assert "worker-a" in await keyed.admin.workers()


async def test_a_token_admits_its_model_only(keyed: Keyed) -> None:
    await keyed.worker()
    client = keyed.client((await keyed.token(pool="aside", model="Mine")).secret)
    async with FakeWorker("stranger") as stranger:  # in a pool of its own, under the name of the other pool's model
        request = stranger.join_request()
        request.pool = "aside"
        with pytest.raises(PermissionDenied, match="another model"):
            await answer(client.registry.Join(request))
        assert list(await keyed.admin.workers()) == ["worker-a"]
        request.model = "Mine"
        await answer(client.registry.Join(request))
    assert (await keyed.admin.workers())["stranger"].model == "Mine"


async def test_a_token_of_this_pool_worker_and_model_is_good(keyed: Keyed) -> None:
    client = keyed.client((await keyed.token(pool="tiny", worker_id="worker-a", model="Tiny")).secret)
    worker = await keyed.stack.worker(client, beating=False)
    await client.beat(worker)


async def test_a_revoked_token_ends_at_the_next_heartbeat_and_its_lanes_are_given_up(keyed: Keyed) -> None:
    made = await keyed.token()
    client = keyed.client(made.secret)
    worker = await keyed.stack.worker(client)
    await _revoke(keyed, made.token.token_id)

    async def is_refused() -> bool:
        try:
            await client.beat(worker)
        except Unauthenticated:
            return True
        return False

    await eventually(is_refused)
    await worker.lapse()

    async def is_gone() -> bool:
        return not await keyed.admin.workers()

    await eventually(is_gone)
    with pytest.raises(UnknownIncarnation):
        await keyed.joiner.beat(worker)


async def test_an_expired_token_is_refused(keyed: Keyed) -> None:
    client = keyed.client((await keyed.token(expires_in_seconds=1)).secret)
    worker = await keyed.stack.worker(client, beating=False)

    async def is_refused() -> bool:
        try:
            await client.join(worker)
        except Unauthenticated:
            return True
        return False

    await eventually(is_refused)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"pool": "No Pool"}, "pool"),
        ({"pool": "p" * 64}, "pool"),
        ({"worker_id": "w" * 129}, "worker_id"),
        ({"worker_id": "a\tb"}, "worker_id"),
        ({"model": "m" * 257}, "model"),
        ({"model": "Tiny\n"}, "model"),
        ({"label": "x" * 257}, "label"),
        ({"expires_in_seconds": 0}, "expires_in_seconds"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused(keyed: Keyed, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as raised:
        await keyed.token(**fields)
    assert raised.value.metadata["field"] == field


HOSTILE_NUMBER = (1 << 64) - 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("worker_id", "w" * 129),
        ("worker_id", "w\0"),
        ("incarnation", "i" * 65),
        ("incarnation", "i\n"),
        ("model", "m" * 257),
        ("model", "m\x7f"),
        ("pool", "p" * 64),
        ("pool", "{x}"),
        ("address", "h" * 255 + ":1"),
        ("address", "nowhere"),
        ("address", "unix:/tmp/socket:1"),
        ("address", "dns://10.0.0.1/worker:1"),
        ("address", "ipv4:10.0.0.1:1,10.0.0.2:2"),
        ("address", "worker :1"),
        ("address", ""),
        ("backend", "b" * 65),
        ("dtype", "d" * 65),
        ("weights", "w" * 65),
        ("weights", "\x1b[2J"),
        ("fingerprint", "f" * 129),
        ("slab_bytes", HOSTILE_NUMBER),
        ("slab_bytes", (1 << 53) + 1),
        ("slab_bytes", 1),
        ("lane_bytes", HOSTILE_NUMBER),
        ("lane_bytes", 1),
        ("num_lanes", (1 << 32) - 1),
        ("num_lanes", 1),
        ("kv_bytes_per_token", HOSTILE_NUMBER),
        ("vocab_size", 0),
    ],
)
async def test_what_no_worker_may_say_of_itself(client: Client, worker: FakeWorker, field: str, value: Any) -> None:
    request = worker.join_request()
    request.incarnation = "another"
    setattr(request, field, value)
    with pytest.raises(InvalidField) as raised:
        await answer(client.registry.Join(request))
    assert raised.value.metadata["field"] in (field, "lane_bytes", "slab_bytes")
    assert (await client.workers())["worker-a"].incarnation == worker.incarnation


async def test_the_largest_slab_that_may_be_said_joins(client: Client, worker: FakeWorker) -> None:
    request = worker.join_request()
    request.worker_id, request.incarnation, request.address = "w" * 128, "i" * 64, "h" * 250 + ":1"
    request.num_lanes, request.lane_bytes = 1 << 7, 1 << 46
    request.slab_bytes = 1 << 53
    await answer(client.registry.Join(request))
    assert (await client.workers())["w" * 128].slab_bytes == 1 << 53


def _lane(**fields: Any) -> registry_pb2.LaneReport:
    asked: dict[str, Any] = {"session_id": "tiny.x", "epoch": 1} | fields
    return registry_pb2.LaneReport(**asked)


def _ranges(*ends: tuple[int, int]) -> list[registry_pb2.LaneReport.Range]:
    return [registry_pb2.LaneReport.Range(start=start, end=end) for start, end in ends]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("kv_live_bytes", {"kv_live_bytes": HOSTILE_NUMBER}),
        ("rss_bytes", {"rss_bytes": (1 << 53) + 1}),
        ("lanes", {"lanes": [_lane(history_length=HOSTILE_NUMBER)]}),
        ("lanes", {"lanes": [_lane(kv_live_bytes=HOSTILE_NUMBER)]}),
        ("lanes", {"lanes": [_lane(history_length=9, retained=_ranges((3, 3)))]}),
        ("lanes", {"lanes": [_lane(history_length=9, retained=_ranges((3, 5), (4, 6)))]}),
        ("lanes", {"lanes": [_lane(history_length=9, retained=_ranges((3, 10)))]}),
        ("lanes", {"lanes": [_lane(lane=(1 << 32) - 1)]}),
        ("lanes", {"lanes": [_lane(history_length=9999, retained=_ranges(*((i, i + 1) for i in range(1025))))]}),
        ("lanes", {"lanes": [_lane()] * ((1 << 16) + 1)}),
        ("pool", {"pool": "}"}),
        ("worker_id", {"worker_id": ""}),
        ("incarnation", {"incarnation": "x" * 65}),
    ],
)
async def test_what_no_heartbeat_may_say(
    client: Client, worker: FakeWorker, field: str, fields: dict[str, Any]
) -> None:
    request = worker.heartbeat_request(complete=False)
    for name, value in fields.items():
        if name == "lanes":
            request.lanes.extend(value)
        else:
            setattr(request, name, value)
    with pytest.raises(InvalidField) as raised:
        await answer(client.registry.Heartbeat(request))
    assert raised.value.metadata["field"] == field


async def test_the_largest_numbers_of_a_heartbeat_do_not_upset_the_ledger(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    worker.stop_beating()
    for _ in range(worker.num_lanes):
        await begin_ahead(stack, await client.session())
    request = worker.heartbeat_request(complete=False)
    request.kv_live_bytes = request.rss_bytes = 1 << 53
    for lane in request.lanes:
        lane.history_length, lane.kv_live_bytes = 1 << 53, 1 << 46
        lane.retained.extend(_ranges((0, 1 << 53)))
    await answer(client.registry.Heartbeat(request))
    status = (await client.workers())["worker-a"]
    assert (status.reported_kv_live_bytes, status.kv_live_bytes) == (1 << 53, worker.num_lanes << 46)
    assert status.rss_bytes == 1 << 53


@pytest.mark.parametrize(
    "fields", [{"epoch": HOSTILE_NUMBER}, {"session_id": ""}, {"session_id": "x" * 5000}, {"session_id": "tiny.x\0"}]
)
async def test_a_lane_that_no_router_opened_is_freed_and_hurts_no_other(
    stack: Stack, client: Client, worker: FakeWorker, fields: dict[str, Any]
) -> None:
    worker.stop_beating()
    session_id = await client.session()
    worker.lanes[session_id].token_ids = [1, 2]
    await begin_ahead(stack, session_id)
    request = worker.heartbeat_request(complete=True)
    stray = _lane(**fields)
    request.lanes.append(stray)
    response = await answer(client.registry.Heartbeat(request))
    assert [(orphan.session_id, orphan.epoch) for orphan in response.orphans] == [(stray.session_id, stray.epoch)]
    assert (await client.info(session_id)).history_length == 2


async def test_a_leave_that_makes_no_sense_is_refused(client: Client, worker: FakeWorker) -> None:
    request = worker.leave_request()
    request.pool = "No Pool"
    with pytest.raises(InvalidField):
        await answer(client.registry.Leave(request))
