"""Keys: made once, shown with each call, revoked and expired; whoever has none stays out."""

import asyncio
import hashlib
import re
import time
from collections.abc import Sequence

import grpc
import pytest

from kakeya_router.access.access_guard import AccessGuard
from kakeya_router.access.authentication import Authenticator
from kakeya_router.access.lookup_cache import MAX_AGE_SECONDS
from kakeya_router.settings import RouterSettings
from kakeya_router.store.access import credentials
from kakeya_router.store.access.credential_store import CredentialStore
from kakeya_router.store.access.credentials import Kind
from kakeya_router.store.access.rights import Quota
from kakeya_router.store.connection import RedisConnection
from kakeya_shared.errors.tree import (
    CredentialNotFound,
    InvalidField,
    PermissionDenied,
    SessionNotFound,
    StoreUnavailable,
    Unauthenticated,
)
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.redis_server import RedisServer
from tests.unit.router.keyed import KEYED, Keyed, keyed_on
from tests.unit.router.stack import Client, answer, eventually

SECRET = re.compile(r"kakeya_key_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
UNKNOWN = "no key, or one that is unknown, revoked or expired"
NO_SUCH_SESSION = "tiny.AAAAAAAAAAAAAAAAAAAAAA"


async def _is_let_in(client: Client) -> bool:
    """Whether a key opens the RuntimeService: then an unknown session is all that is wrong."""
    try:
        await client.info(NO_SUCH_SESSION)
    except SessionNotFound:
        return True
    except Unauthenticated as error:
        assert error.message == UNKNOWN
        assert not error.metadata
    return False


async def test_a_key_is_shown_once_and_kept_as_a_digest(keyed: Keyed) -> None:
    made = await keyed.key("acme", label="laptop", expires_in_seconds=60)
    assert SECRET.fullmatch(made.secret)
    assert made.key.key_id in made.secret
    assert (made.key.tenant, made.key.label, list(made.key.scopes)) == ("acme", "laptop", [pb.SCOPE_SESSIONS])
    assert made.key.expires_at == pytest.approx(made.key.created_at + 60, abs=0.001)
    assert made.key.created_at == pytest.approx(time.time(), abs=30)
    kept = {name: await keyed.stack.redis.type(name) for name in await keyed.stack.keys("*access*")}
    assert kept == {"kakeya:{access}:keys": "set", f"kakeya:{{access}}:key:{made.key.key_id}": "hash"}
    values = await keyed.stack.redis.hgetall(f"kakeya:{{access}}:key:{made.key.key_id}")
    assert values["digest"] == hashlib.sha256(made.secret.encode()).hexdigest()
    assert made.secret.split("_", 3)[3] not in str(values)


async def test_keys_are_listed_oldest_first_without_their_secrets(keyed: Keyed) -> None:
    first = await keyed.key("acme")
    second = await keyed.key("zeta", scopes=[pb.SCOPE_ADMIN, pb.SCOPE_SESSIONS, pb.SCOPE_ADMIN])
    third = await keyed.key("acme")
    assert list(await keyed.keys()) == [first.key, second.key, third.key]
    assert list(await keyed.keys("acme")) == [first.key, third.key]
    assert not await keyed.keys("nobody")
    assert list(second.key.scopes) == [pb.SCOPE_SESSIONS, pb.SCOPE_ADMIN]
    assert second.key.expires_at == 0


async def test_a_key_lets_in(keyed: Keyed) -> None:
    made = await keyed.key()
    assert await _is_let_in(keyed.client(made.secret))
    assert await _is_let_in(keyed.admin)


async def test_the_scheme_may_be_written_as_anybody_likes(keyed: Keyed) -> None:
    secret = (await keyed.key()).secret
    request = api.GetSessionInfoRequest(session_id=NO_SUCH_SESSION)
    for value in (f"bearer {secret}", f"BEARER {secret}", f"Bearer   {secret} "):
        with pytest.raises(SessionNotFound):
            await answer(keyed.nobody.runtime.GetSessionInfo(request, metadata=(("authorization", value),)))


async def test_whoever_shows_no_good_key_stays_out_with_one_message(keyed: Keyed) -> None:
    made = await keyed.key()
    other = await keyed.key()
    token = await keyed.token()
    request = api.GetSessionInfoRequest(session_id=NO_SUCH_SESSION)
    mixed = f"kakeya_key_{made.key.key_id}_{other.secret.rpartition('_')[2]}"
    shown = [
        (),
        (("authorization", ""),),
        (("authorization", made.secret),),
        (("authorization", f"Basic {made.secret}"),),
        (("authorization", "Bearer "),),
        (("authorization", f"Bearer {made.secret}x"),),
        (("authorization", f"Bearer {made.secret[:-1]}"),),
        (("authorization", f"Bearer {made.secret.swapcase()}"),),
        (("authorization", f"Bearer {mixed}"),),
        (("authorization", f"Bearer {token.secret}"),),
        (("authorization", f"Bearer {KEYED['join_token']}"),),
        (("authorization", f"Bearer {made.secret}"), ("authorization", f"Bearer {made.secret}")),
        (("authorization", f"Bearer {credentials.mint(Kind.KEY).secret}"),),
        (("authorization-bin", made.secret.encode()),),
    ]
    for metadata in shown:
        with pytest.raises(Unauthenticated) as raised:
            await answer(keyed.nobody.runtime.GetSessionInfo(request, metadata=metadata))
        assert (raised.value.message, raised.value.metadata) == (UNKNOWN, {}), metadata


async def test_a_key_is_good_for_its_scopes_only(keyed: Keyed) -> None:
    sessions = await keyed.tenant("acme")
    admin = await keyed.tenant("acme", scopes=[pb.SCOPE_ADMIN])
    both = await keyed.tenant("acme", scopes=[pb.SCOPE_ADMIN, pb.SCOPE_SESSIONS])
    with pytest.raises(PermissionDenied, match="scope admin"):
        await sessions.workers()
    with pytest.raises(PermissionDenied, match="scope sessions"):
        await admin.info(NO_SUCH_SESSION)
    assert not await admin.workers()
    assert not await both.workers()
    assert await _is_let_in(both)


async def test_a_revoked_key_is_refused_by_every_router_within_a_second(keyed: Keyed) -> None:
    other_router = await keyed.stack.router(**KEYED)
    made = await keyed.key()
    here, there = keyed.client(made.secret), keyed.client(made.secret, other_router.address)
    assert await _is_let_in(here)
    assert await _is_let_in(there)
    assert await keyed.revoke(made.key.key_id) == made.key
    for client in (here, there):
        await eventually(lambda: _is_out(client))  # noqa: B023  # awaited at once
    assert not await keyed.keys()
    assert not await keyed.stack.keys("*access*")


async def test_what_runs_when_its_key_is_revoked_goes_on_to_its_end(keyed: Keyed) -> None:
    worker = await keyed.worker()
    made = await keyed.key()
    client = keyed.client(made.secret)
    session_id = await client.session()
    await client.append(session_id, [1])
    worker.flowing.clear()
    call = client.generating(session_id, 3)
    await eventually(lambda: _count(worker.generating, 1))
    await keyed.revoke(made.key.key_id)
    await eventually(lambda: _is_out(client))
    worker.flowing.set()
    assert [response async for response in call][-1].done.generated_token_count == 3


def test_what_was_looked_up_is_old_before_a_second_is_over() -> None:
    assert 0 < MAX_AGE_SECONDS < 1


async def test_scopes_of_a_newer_router_are_ignored(keyed: Keyed) -> None:
    made = await keyed.key()
    await keyed.stack.redis.hset(f"kakeya:{{access}}:key:{made.key.key_id}", "scope_names", "sessions,levitation")
    assert await _is_let_in(keyed.client(made.secret))


async def _count(things: Sequence[object], number: int) -> bool:
    return len(things) == number


async def _is_out(client: Client) -> bool:
    return not await _is_let_in(client)


@pytest.mark.parametrize("key_id", ["", "0123456789ab", "not an id", "0" * 10_000, "é"])
async def test_a_key_that_is_not_there_cannot_be_revoked(keyed: Keyed, key_id: str) -> None:
    with pytest.raises(CredentialNotFound):
        await keyed.revoke(key_id)


async def test_an_expired_key_is_refused_and_stays_in_the_list_for_30_days(keyed: Keyed) -> None:
    made = await keyed.key(expires_in_seconds=1)
    client = keyed.client(made.secret)
    assert await _is_let_in(client)
    await eventually(lambda: _is_out(client))
    assert time.time() >= made.key.expires_at - 0.5
    assert list(await keyed.keys()) == [made.key]
    name = f"kakeya:{{access}}:key:{made.key.key_id}"
    assert 29.9 < await keyed.stack.redis.pttl(name) / 86_400_000 <= 30
    await keyed.stack.redis.delete(name)  # as Redis does when they are over
    assert not await keyed.keys()
    assert not await keyed.stack.redis.exists("kakeya:{access}:keys")


async def test_expiry_goes_by_the_clock_of_redis(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await keyed.key(expires_in_seconds=60)
    monkeypatch.setattr(time, "time", lambda: made.key.expires_at + 1e6)
    assert await _is_let_in(keyed.client(made.secret))
    await keyed.stack.redis.hset(f"kakeya:{{access}}:key:{made.key.key_id}", "expires_ms", 1)
    await eventually(lambda: _is_out(keyed.client(made.secret)))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tenant": ""}, "tenant"),
        ({"tenant": "Acme"}, "tenant"),
        ({"tenant": "-acme"}, "tenant"),
        ({"tenant": "a" * 65}, "tenant"),
        ({"tenant": "a|b"}, "tenant"),
        ({"tenant": "acme\n"}, "tenant"),
        ({"label": "é" * 129}, "label"),
        ({"label": "a\0b"}, "label"),
        ({"label": "a\nb"}, "label"),
        ({"label": "a\u2028b"}, "label"),
        ({"scopes": [0]}, "scopes"),
        ({"scopes": [pb.SCOPE_ADMIN, 77]}, "scopes"),
        ({"expires_in_seconds": 0}, "expires_in_seconds"),
        ({"expires_in_seconds": (1 << 64) - 1}, "expires_in_seconds"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(keyed: Keyed, fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidField) as raised:
        # The fields are those of any case, and wrong on purpose.
        await keyed.key(**({"tenant": "acme"} | fields))  # type: ignore[arg-type]
    assert raised.value.metadata["field"] == field
    assert not await keyed.stack.keys("*access*")


@pytest.mark.parametrize("tenant", ["a", "0", "a" * 64, "a.b-c_d"])
async def test_names_that_tenants_may_have(keyed: Keyed, tenant: str) -> None:
    assert (await keyed.key(tenant, label="é" * 128)).key.tenant == tenant


async def test_an_id_that_is_taken_is_not_given_again(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await keyed.key("acme")
    ids = iter([first.key.key_id, "0123456789ab"])
    monkeypatch.setattr("kakeya_router.store.access.credentials.secrets.token_hex", lambda _: next(ids))
    second = await keyed.key("zeta")
    monkeypatch.undo()
    assert second.key.key_id == "0123456789ab"
    assert {key.tenant for key in await keyed.keys()} == {"acme", "zeta"}


async def test_without_redis_nobody_is_called_unknown(own_redis: RedisServer) -> None:
    async with keyed_on(own_redis.url) as keyed:
        made = await keyed.key()
        own_redis.stop()
        with pytest.raises(StoreUnavailable):
            await keyed.client(made.secret).info(NO_SUCH_SESSION)
        with pytest.raises(StoreUnavailable):
            await keyed.admin.workers()
        with pytest.raises(Unauthenticated):
            await keyed.nobody.info(NO_SUCH_SESSION)
        own_redis.start()
        assert await eventually(lambda: _comes_back(keyed.client(made.secret)))


async def _comes_back(client: Client) -> bool:
    try:
        return await _is_let_in(client)
    except StoreUnavailable:
        return False


async def test_without_keys_everybody_is_let_in(client: Client) -> None:
    assert await _is_let_in(client)
    request = api.GetSessionInfoRequest(session_id=NO_SUCH_SESSION)
    with pytest.raises(SessionNotFound):
        await answer(client.runtime.GetSessionInfo(request, metadata=(("authorization", "Bearer of bad news"),)))


async def test_a_service_that_no_table_names_is_closed(redis_url: str) -> None:
    redis = RedisConnection(redis_url)
    guard = AccessGuard(Authenticator(CredentialStore(redis), Quota(), admin_key=None))
    for method in ("/kakeya.v2.RuntimeService/CreateSession", "/kakeya.v1.RuntimeServiceX/Y", "/", ""):
        with pytest.raises(PermissionDenied):
            await guard(method, ())
    await redis.aclose()


async def test_a_minted_secret_does_not_show_by_accident() -> None:
    minted = credentials.mint(Kind.KEY)
    assert minted.secret not in f"{minted} {minted!r}"
    assert len({credentials.mint(Kind.TOKEN).secret for _ in range(100)}) == 100


async def test_a_flood_of_guesses_keeps_nobody_out(keyed: Keyed) -> None:
    made = await keyed.key()
    guesser, client = keyed.nobody, keyed.client(made.secret)
    request = api.GetSessionInfoRequest(session_id=NO_SUCH_SESSION)

    async def guess() -> grpc.StatusCode:
        metadata = (("authorization", f"Bearer {credentials.mint(Kind.KEY).secret}"),)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await guesser.runtime.GetSessionInfo(request, metadata=metadata)
        return raised.value.code()

    guesses = [asyncio.create_task(guess()) for _ in range(500)]
    assert await _is_let_in(client)
    assert set(await asyncio.gather(*guesses)) == {grpc.StatusCode.UNAUTHENTICATED}


@pytest.mark.parametrize("flag", ["admin-key", "join-token"])
def test_a_secret_that_nobody_would_be_asked_for_ends_the_start(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    secret = "a-secret-of-my-own-0123456789"
    with pytest.raises(SystemExit):
        RouterSettings.parse([f"--{flag}", secret])
    error = capsys.readouterr().err
    assert error.endswith("--admin-key and --join-token need --auth keys: without it nobody is asked for them\n")
    assert (error.count("\n"), secret in error) == (1, False)


def test_variables_that_are_set_to_nothing_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("KAKEYA_ROUTER_ADMIN_KEY", "KAKEYA_ROUTER_JOIN_TOKEN"):
        monkeypatch.setenv(variable, "")
    assert RouterSettings.parse([]).admin_key is None


@pytest.mark.parametrize("flag", ["admin-key", "join-token"])
@pytest.mark.parametrize(
    "secret", ["x" * 23, " " * 30, "two words, each of them visible", "sch\u00f6n" * 6, "x" * 24 + "\0"]
)
def test_a_secret_that_cannot_be_shown_ends_the_start(
    capsys: pytest.CaptureFixture[str], flag: str, secret: str
) -> None:
    with pytest.raises(SystemExit):
        RouterSettings.parse(["--auth", "keys", f"--{flag}", secret])
    error = capsys.readouterr().err
    assert f"--{flag}" in error
    assert error.endswith("must have at least 24 letters, all of them visible ASCII\n")
    assert (error.count("\n"), secret in error) == (1, False)


async def test_a_secret_from_a_file_may_end_its_line(redis_url: str) -> None:
    async with keyed_on(
        redis_url, admin_key=f"{KEYED['admin_key']}\n", join_token=f" {KEYED['join_token']}\r\n"
    ) as keyed:
        await keyed.worker()
        assert list(await keyed.admin.workers()) == ["worker-a"]
