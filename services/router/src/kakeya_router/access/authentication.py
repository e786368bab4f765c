"""Who shows which secret: from a call's metadata to a key's tenant and scopes, or to what a join token permits."""

import hashlib
import hmac
import math
import secrets
import time
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import SecretStr

from kakeya_router.access.callers import Caller
from kakeya_router.access.join_permits import Permit
from kakeya_router.access.lookup_cache import MAX_AGE_SECONDS, LookupCache
from kakeya_router.store.access import credentials
from kakeya_router.store.access.credential_records import Credential, Key, Token
from kakeya_router.store.access.credential_store import CredentialStore
from kakeya_router.store.access.rights import Quota, Scope
from kakeya_shared.errors.tree import Unauthenticated
from kakeya_shared.rpc.tracing import Metadata

C = TypeVar("C", bound=Credential)

METADATA_KEY = "authorization"

OPERATOR = Caller(tenant="operator", key_id="admin-key")
"""Who shows the administrator's key of the configuration."""

CONFIGURED_PERMIT = Permit(token_id="join-token")  # noqa: S106  # its name in logs
"""Of who shows the join token of the configuration."""

_SCHEME = "bearer"
_ALL_SCOPES = frozenset(Scope)
# What has changed is seen within `MAX_AGE_SECONDS`, of which each of a key's two memories takes a half.
_KEY_AGE_SECONDS = MAX_AGE_SECONDS / 2
# Some hundred bytes each.
_MAX_RECOGNISED = 4096

# Compared with where there is nothing to compare with: then every secret takes the same way. Nothing has this digest.
_NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True)
class _Held(Generic[C]):
    """A credential of the store; `expires_at` by this process's monotonic clock."""

    record: C
    expires_at: float


@dataclass(frozen=True, slots=True)
class _Recognised:
    """Who showed a good key a moment ago; `until` by this process's monotonic clock."""

    caller: Caller
    scopes: frozenset[Scope]
    until: float


class Authenticator:
    """Knows callers and workers by their secrets, for `AccessGuard`.

    Secrets are compared in a time that says nothing about where two differ. What the store says is kept for a moment,
    and so is who showed a good key, since each call shows one. Expiry goes by Redis's clock, the one that all routers
    share: with each look-up comes Redis's time, and the rest of the lifetime is counted here.

    Args:
        default_quota: of tenants that have none of their own.
        admin_key, join_token: beside those in the store; None: there is none.
    """

    def __init__(
        self,
        store: CredentialStore,
        default_quota: Quota,
        *,
        admin_key: SecretStr | None = None,
        join_token: SecretStr | None = None,
    ) -> None:
        self._store = store
        self._default_quota = default_quota
        self._admin_digest = _digest_of(admin_key)
        self._join_digest = _digest_of(join_token)
        self._keys = LookupCache(lambda name: self._look_up(Key, name), max_age_seconds=_KEY_AGE_SECONDS)
        self._recognised: dict[bytes, _Recognised] = {}
        self._marking_key = secrets.token_bytes()
        self._tokens = LookupCache(lambda name: self._look_up(Token, name))
        self._quotas = LookupCache(store.quota)

    async def key(self, metadata: Metadata) -> tuple[Caller, frozenset[Scope]]:
        """Who shows this key, without a quota, and what the key is good for.

        Raises:
            Unauthenticated: there is no key, or none that is good.
            StoreUnavailable
        """
        secret = _bearer(metadata)
        # It says nothing of the secret, and nobody can foresee it.
        mark = hashlib.blake2b(secret.encode(), digest_size=32, key=self._marking_key).digest()
        known = self._recognised.get(mark)
        if known is None or time.monotonic() >= known.until:
            known = await self._recognise(secret)
            if len(self._recognised) >= _MAX_RECOGNISED:
                self._recognised.clear()
            self._recognised[mark] = known
        return known.caller, known.scopes

    async def token(self, metadata: Metadata) -> Permit:
        """What this join token permits; raises as `key`."""
        secret = _bearer(metadata)
        digest = credentials.digest(secret)
        if hmac.compare_digest(digest, self._join_digest):
            return CONFIGURED_PERMIT
        held = await self._held(self._tokens, Token, secret, digest)
        if held is None:
            raise Unauthenticated("no join token, or one that is unknown, revoked or expired")
        token = held.record
        return Permit(token.credential_id, token.pool, token.worker_id, token.model)

    async def quota(self, tenant: str) -> Quota:
        """The tenant's own, or the default; at most a second old. Raises StoreUnavailable."""
        return await self._quotas.get(tenant) or self._default_quota

    async def _recognise(self, secret: str) -> _Recognised:
        """Raises as `key`."""
        until = time.monotonic() + _KEY_AGE_SECONDS
        digest = credentials.digest(secret)
        if hmac.compare_digest(digest, self._admin_digest):
            return _Recognised(OPERATOR, _ALL_SCOPES, until)
        held = await self._held(self._keys, Key, secret, digest)
        if held is None:
            raise Unauthenticated("no key, or one that is unknown, revoked or expired")
        key = held.record
        return _Recognised(Caller(key.tenant, key.credential_id), key.scopes, min(until, held.expires_at))

    async def _held(self, cache: LookupCache[_Held[C]], of: type[C], secret: str, digest: str) -> _Held[C] | None:
        """The credential whose secret, with this digest, this is; None where there is none that is good."""
        credential_id = credentials.id_of(of.kind, secret)
        held = await cache.get(credential_id) if credential_id is not None else None
        is_same = hmac.compare_digest(digest, held.record.digest if held is not None else _NO_DIGEST)
        return held if held is not None and is_same and time.monotonic() < held.expires_at else None

    async def _look_up(self, of: type[C], credential_id: str) -> _Held[C] | None:
        found = await self._store.find(of, credential_id)
        if found is None:
            return None
        record, now_ms = found
        left_seconds = (record.expires_ms - now_ms) / 1000 if record.expires_ms else math.inf
        return _Held(record, time.monotonic() + left_seconds)


def _digest_of(secret: SecretStr | None) -> str:
    return credentials.digest(secret.get_secret_value()) if secret is not None else _NO_DIGEST


def _bearer(metadata: Metadata) -> str:
    """The one secret that a call shows; "" where it shows none, or several."""
    shown = [value for name, value in metadata if name == METADATA_KEY]
    if len(shown) != 1 or not isinstance(shown[0], str):
        return ""
    scheme, _, secret = shown[0].partition(" ")
    return secret.strip() if scheme.lower() == _SCHEME else ""
