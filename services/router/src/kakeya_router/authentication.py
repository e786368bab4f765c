"""Who shows which secret: from a call's metadata to a key's tenant and scopes, or to what a join token permits."""

import hmac
import time
from dataclasses import dataclass

from pydantic import SecretStr

from kakeya_router import credentials
from kakeya_router.callers import Caller, Quota, Scope
from kakeya_router.credentials import Kind
from kakeya_router.join_permits import Permit
from kakeya_router.lookup_cache import LookupCache
from kakeya_router.store.credential_records import Credential, Key, Token
from kakeya_router.store.credential_store import CredentialStore, Found
from kakeya_shared.errors import Unauthenticated
from kakeya_shared.tracing import Metadata

METADATA_KEY = "authorization"

OPERATOR = Caller(tenant="operator", key_id="admin-key")
"""Who shows the administrator's key of the configuration."""

CONFIGURED_PERMIT = Permit(token_id="join-token")  # noqa: S106  # its name in logs
"""Of who shows the join token of the configuration."""

_SCHEME = "bearer"
_ALL_SCOPES = frozenset(Scope)
# Compared with where there is nothing to compare with: then every secret takes the same way. Nothing has this digest.
_NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True)
class _Held:
    """A credential of the store; `expires_at` by this process's monotonic clock, None: never."""

    record: Credential
    expires_at: float | None

    @property
    def is_good(self) -> bool:
        return self.expires_at is None or time.monotonic() < self.expires_at


class Authenticator:
    """Knows callers by their secrets, which it compares in a time that says nothing about where two differ.

    Expiry goes by Redis's clock, the one that all routers share: with each look-up comes Redis's time, and the rest of
    the lifetime is counted here.

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
        self._keys = LookupCache(self._look_up_key)
        self._tokens = LookupCache(self._look_up_token)
        self._quotas = LookupCache(store.quota)

    async def key(self, metadata: Metadata) -> tuple[Caller, frozenset[Scope]]:
        """Who shows this key, without a quota, and what the key is good for.

        Raises:
            Unauthenticated: there is no key, or none that is good.
            StoreUnavailable
        """
        secret = _bearer(metadata)
        digest = credentials.digest(secret)
        if hmac.compare_digest(digest, self._admin_digest):
            return OPERATOR, _ALL_SCOPES
        record = await self._held(self._keys, Kind.KEY, secret, digest)
        if not isinstance(record, Key):
            raise Unauthenticated("no key, or one that is unknown, revoked or expired")
        return Caller(record.tenant, record.credential_id), record.scopes

    async def token(self, metadata: Metadata) -> Permit:
        """What this join token permits; raises as `key`."""
        secret = _bearer(metadata)
        digest = credentials.digest(secret)
        if hmac.compare_digest(digest, self._join_digest):
            return CONFIGURED_PERMIT
        record = await self._held(self._tokens, Kind.TOKEN, secret, digest)
        if not isinstance(record, Token):
            raise Unauthenticated("no join token, or one that is unknown, revoked or expired")
        return Permit(record.credential_id, record.pool, record.worker_id, record.model)

    async def quota(self, tenant: str) -> Quota:
        """The tenant's own, or the default; at most a second old. Raises StoreUnavailable."""
        return await self._quotas.get(tenant) or self._default_quota

    async def _held(self, cache: LookupCache[_Held], kind: Kind, secret: str, digest: str) -> Credential | None:
        """The credential whose secret, with this digest, this is; None where there is none that is good."""
        credential_id = credentials.id_of(kind, secret)
        held = await cache.get(credential_id) if credential_id is not None else None
        same = hmac.compare_digest(digest, held.record.digest if held is not None else _NO_DIGEST)
        return held.record if held is not None and same and held.is_good else None

    async def _look_up_key(self, key_id: str) -> _Held | None:
        found = await self._store.find(Kind.KEY, key_id)
        return _held(Key.from_hash(found.values), found) if found is not None else None

    async def _look_up_token(self, token_id: str) -> _Held | None:
        found = await self._store.find(Kind.TOKEN, token_id)
        return _held(Token.from_hash(found.values), found) if found is not None else None


def _held(record: Credential, found: Found) -> _Held:
    left_ms = record.expires_ms - found.now_ms
    return _Held(record, time.monotonic() + left_ms / 1000 if record.expires_ms else None)


def _digest_of(secret: SecretStr | None) -> str:
    return credentials.digest(secret.get_secret_value()) if secret is not None else _NO_DIGEST


def _bearer(metadata: Metadata) -> str:
    """The one secret that a call shows; "" where it shows none, or several."""
    shown = [value for name, value in metadata if name == METADATA_KEY]
    if len(shown) != 1 or not isinstance(shown[0], str):
        return ""
    scheme, _, secret = shown[0].partition(" ")
    return secret.strip() if scheme.lower() == _SCHEME else ""
