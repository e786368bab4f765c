"""Keys, join tokens and quotas in Redis; each change is one script.

All of it shares the hash tag `{access}`, for none of it belongs to a pool:

- `kakeya:{access}:keys`, `kakeya:{access}:tokens`: sets of ids
- `kakeya:{access}:key:ID`, `kakeya:{access}:token:ID`: hashes, a `Key` or a `Token`
- `kakeya:{access}:tenants`: set of the tenants that have a quota of their own
- `kakeya:{access}:tenant:NAME`: hash, a `QuotaRecord`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kakeya_router.store.access.credential_records import Credential, Key, QuotaRecord, Token
from kakeya_router.store.access.credentials import Kind
from kakeya_router.store.access.rights import Quota
from kakeya_router.store.connection import RedisConnection, time_ms

C = TypeVar("C", bound=Credential)

_PREFIX = "kakeya:{access}:"
_TENANTS = f"{_PREFIX}tenants"
_DAY_MS = 86_400_000
# Long enough to see in the list why something stopped working a while ago.
_EXPIRED_RETENTION_MS = 30 * _DAY_MS


class Found(NamedTuple):
    """A hash of Redis, and Redis's time when it was read."""

    values: dict[str, str]
    now_ms: int


@dataclass(eq=False)
class CredentialStore:
    """All methods raise StoreUnavailable."""

    _redis: RedisConnection

    async def create_key(self, key: Key, lifetime_ms: int) -> Key | None:
        """The key with its times; None: its id is taken. `lifetime_ms` 0: it does not expire."""
        return await self._create(Kind.KEY, key, lifetime_ms)

    async def create_token(self, token: Token, lifetime_ms: int) -> Token | None:
        """As `create_key`."""
        return await self._create(Kind.TOKEN, token, lifetime_ms)

    async def keys(self) -> list[Key]:
        """All of them, oldest first."""
        return await self._list(Kind.KEY, Key)

    async def tokens(self) -> list[Token]:
        """All of them, oldest first."""
        return await self._list(Kind.TOKEN, Token)

    async def revoke_key(self, key_id: str) -> Key | None:
        """The key that it was; None: there is none."""
        return await self._revoke(Kind.KEY, Key, key_id)

    async def revoke_token(self, token_id: str) -> Token | None:
        """The token that it was; None: there is none."""
        return await self._revoke(Kind.TOKEN, Token, token_id)

    async def find(self, kind: Kind, credential_id: str) -> Found | None:
        """The record of a key or a token as it is now; expired ones too."""
        name = _name(kind, credential_id)
        values, time = await self._redis.commands([("HGETALL", name), ("TIME",)])
        return Found(values, time_ms(time)) if values else None

    async def set_quota(self, tenant: str, quota: QuotaRecord | None) -> None:
        """None: the tenant has the router's defaults again."""
        record = quota.to_pairs() if quota is not None else []
        await self._redis.script("set_quota", [_quota(tenant), _TENANTS], tenant=tenant, record=record)

    async def quota(self, tenant: str) -> Quota | None:
        """The tenant's own; None: it has the router's defaults."""
        (own,) = await self.quotas([tenant])
        return own

    async def quotas(self, tenants: Sequence[str]) -> list[Quota | None]:
        """As `quota`, of many."""
        found = await self._redis.hashes([_quota(tenant) for tenant in tenants])
        return [QuotaRecord.from_hash(values).quota if values else None for values in found]

    async def tenants_with_quota(self) -> list[str]:
        return sorted(await self._redis.call(lambda redis: redis.smembers(_TENANTS)))

    async def _create(self, kind: Kind, wanted: C, lifetime_ms: int) -> C | None:
        flat = await self._redis.script(
            "create_credential",
            [_name(kind, wanted.credential_id), _ids(kind)],
            credential_id=wanted.credential_id,
            lifetime_ms=lifetime_ms,
            retention_ms=_EXPIRED_RETENTION_MS,
            record=wanted.to_pairs(),
        )
        return type(wanted).from_pairs(flat) if flat else None

    async def _list(self, kind: Kind, of: type[C]) -> list[C]:
        ids = sorted(await self._redis.call(lambda redis: redis.smembers(_ids(kind))))
        found = await self._redis.hashes([_name(kind, credential_id) for credential_id in ids])
        faded = [credential_id for credential_id, values in zip(ids, found, strict=True) if not values]
        if faded:  # long expired; the same id is not minted again in this moment
            await self._redis.call(lambda redis: redis.srem(_ids(kind), *faded))
        return sorted((of.from_hash(values) for values in found if values), key=lambda record: record.created_ms)

    async def _revoke(self, kind: Kind, of: type[C], credential_id: str) -> C | None:
        keys = [_name(kind, credential_id), _ids(kind)]
        flat = await self._redis.script("revoke_credential", keys, credential_id=credential_id)
        return of.from_pairs(flat) if flat else None


def _noun(kind: Kind) -> str:
    return "key" if kind is Kind.KEY else "token"


def _ids(kind: Kind) -> str:
    return f"{_PREFIX}{_noun(kind)}s"


def _name(kind: Kind, credential_id: str) -> str:
    return f"{_PREFIX}{_noun(kind)}:{credential_id}"


def _quota(tenant: str) -> str:
    return f"{_PREFIX}tenant:{tenant}"
