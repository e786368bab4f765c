"""Who shows which key: compared in constant time, recognised for a moment and no longer than it is good."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from kakeya_router.access import authentication
from kakeya_router.access.authentication import Authenticator
from kakeya_router.access.callers import Caller
from kakeya_router.access.lookup_cache import MAX_AGE_SECONDS
from kakeya_router.store.access import credentials
from kakeya_router.store.access.credential_records import Key
from kakeya_router.store.access.credential_store import CredentialStore
from kakeya_router.store.access.credentials import Kind, Minted
from kakeya_router.store.access.rights import Quota, Scope
from kakeya_router.store.connection import RedisConnection
from kakeya_shared.errors.tree import Unauthenticated
from kakeya_shared.rpc.tracing import Metadata


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[CredentialStore]:
    redis = RedisConnection(redis_url)
    yield CredentialStore(redis)
    await redis.aclose()


@pytest.fixture
def authenticator(store: CredentialStore) -> Authenticator:
    return Authenticator(store, Quota())


async def make_key(store: CredentialStore, lifetime_ms: int = 0) -> Minted:
    minted = credentials.mint(Kind.KEY)
    key = Key(credential_id=minted.credential_id, digest=minted.digest, tenant="acme", scope_names="sessions")
    assert await store.create(key, lifetime_ms)
    return minted


def shown(secret: str) -> Metadata:
    return (("authorization", f"Bearer {secret}"),)


def near_miss(secret: str) -> str:
    return secret[:-1] + ("A" if secret[-1] != "A" else "B")


async def test_secrets_are_compared_in_constant_time_and_always(
    store: CredentialStore, authenticator: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    minted = await make_key(store)
    monkeypatch.setattr(authentication, "hmac", type("Hmac", (), {"compare_digest": staticmethod(compare)}))
    for secret, kept in (
        (near_miss(minted.secret), minted.digest),
        (credentials.mint(Kind.KEY).secret, "0" * 64),
        ("something else", "0" * 64),
    ):
        compared.clear()
        with pytest.raises(Unauthenticated):
            await authenticator.key(shown(secret))
        digest = hashlib.sha256(secret.encode()).hexdigest()
        assert compared == [(digest, "0" * 64), (digest, kept)]


async def test_nobody_is_recognised_by_a_key_that_is_nearly_the_same(
    store: CredentialStore, authenticator: Authenticator
) -> None:
    minted = await make_key(store)
    for _ in range(2):
        caller = Caller("acme", minted.credential_id)
        assert await authenticator.key(shown(minted.secret)) == (caller, frozenset({Scope.SESSIONS}))
        with pytest.raises(Unauthenticated):
            await authenticator.key(shown(near_miss(minted.secret)))


async def test_whoever_was_recognised_is_not_once_the_key_has_expired(
    store: CredentialStore, authenticator: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(authentication, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(authentication, "_KEY_AGE_SECONDS", 600.0)
    minted = await make_key(store, lifetime_ms=60_000)
    assert await authenticator.key(shown(minted.secret))
    now = 61.0
    with pytest.raises(Unauthenticated):
        await authenticator.key(shown(minted.secret))


async def test_whoever_was_recognised_is_looked_up_again(store: CredentialStore, authenticator: Authenticator) -> None:
    minted = await make_key(store)
    assert await authenticator.key(shown(minted.secret))
    assert await store.revoke(Key, minted.credential_id)
    await asyncio.sleep(MAX_AGE_SECONDS + 0.05)
    with pytest.raises(Unauthenticated):
        await authenticator.key(shown(minted.secret))


async def test_not_everybody_is_remembered(
    store: CredentialStore, authenticator: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_MAX_RECOGNISED", 2)
    for _ in range(5):
        assert await authenticator.key(shown((await make_key(store)).secret))
        assert len(authenticator._recognised) <= 2


async def test_no_secret_is_kept(store: CredentialStore, authenticator: Authenticator) -> None:
    minted = await make_key(store)
    await authenticator.key(shown(minted.secret))
    kept = f"{vars(authenticator)} {vars(authenticator._keys)}"
    assert minted.credential_id in kept
    assert minted.secret.split("_", 3)[3] not in kept
