"""Keys, join tokens and quotas in Redis; each change is one script.

All of it shares the hash tag `{access}`, for none of it belongs to a pool:

- `kakeya:{access}:keys`, `kakeya:{access}:tokens`: sets of ids
- `kakeya:{access}:key:ID`, `kakeya:{access}:token:ID`: hashes, a `Key` or a `Token`
- `kakeya:{access}:tenants`: set of the tenants that have a quota of their own
- `kakeya:{access}:tenant:NAME`: hash, a `Quota`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from kakeya_router.store.access.credential_records import Credential
from kakeya_router.store.access.credentials import Kind
from kakeya_router.store.access.rights import Quota
from kakeya_router.store.connection import RedisConnection, time_ms

C = TypeVar("C", bound=Credential)

_PREFIX = "kakeya:{access}:"
_TENANTS = f"{_PREFIX}tenants"
_DAY_MS = 86_400_000
# Long enough to see in the list why something stopped working a while ago.
_EXPIRED_RETENTION_MS = 30 * _DAY_MS


@dataclass(eq=False)
class CredentialStore:
    """All methods raise StoreUnavailable."""

    _redis: RedisConnection

    async def create(self, wanted: C, lifetime_ms: int) -> C | None:
        """The key or token with its times; None: its id is taken. `lifetime_ms` 0: it does not expire."""
        flat = await self._redis.script(
            "create_credential",
            [_name(wanted.kind, wanted.credential_id), _ids(wanted.kind)],
            credential_id=wanted.credential_id,
            lifetime_ms=lifetime_ms,
            retention_ms=_EXPIRED_RETENTION_MS,
            record=wanted.to_pairs(),
        )
        return type(wanted).from_pairs(flat) if flat else None

    async def all(self, of: type[C]) -> list[C]:
        """All keys, or all tokens, oldest first."""
        ids = sorted(await self._redis.call(lambda redis: redis.smembers(_ids(of.kind))))
        found = await self._redis.hashes([_name(of.kind, credential_id) for credential_id in ids])
        faded = [credential_id for credential_id, values in zip(ids, found, strict=True) if not values]
        if faded:  # long expired; the same id is not minted again in this moment
            await self._redis.call(lambda redis: redis.srem(_ids(of.kind), *faded))
        return sorted((of.from_hash(values) for values in found if values), key=lambda record: record.created_ms)

    async def revoke(self, of: type[C], credential_id: str) -> C | None:
        """The key or token that it was; None: there is none."""
        keys = [_name(of.kind, credential_id), _ids(of.kind)]
        flat = await self._redis.script("revoke_credential", keys, credential_id=credential_id)
        return of.from_pairs(flat) if flat else None

    async def find(self, of: type[C], credential_id: str) -> tuple[C, int] | None:
        """A key or a token as it is now, expired ones too, and Redis's time."""
        name = _name(of.kind, credential_id)
        values, time = await self._redis.commands([("HGETALL", name), ("TIME",)])
        return (of.from_hash(values), time_ms(time)) if values else None

    async def set_quota(self, tenant: str, quota: Quota | None) -> None:
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
        return [Quota.from_hash(values) if values else None for values in found]

    async def tenants_with_quota(self) -> list[str]:
        return sorted(await self._redis.call(lambda redis: redis.smembers(_TENANTS)))


def _noun(kind: Kind) -> str:
    return "key" if kind is Kind.KEY else "token"


def _ids(kind: Kind) -> str:
    return f"{_PREFIX}{_noun(kind)}s"


def _name(kind: Kind, credential_id: str) -> str:
    return f"{_PREFIX}{_noun(kind)}:{credential_id}"


def _quota(tenant: str) -> str:
    return f"{_PREFIX}tenant:{tenant}"
