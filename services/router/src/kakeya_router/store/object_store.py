"""Objects that tenants have kept, in Redis.

Those of one tenant share the hash tag `{objects:TENANT}`, for none of them belongs to a pool. No pool has such a name:

- `kakeya:{objects:TENANT}:object:ID`: string, the object, until it expires
- `kakeya:{objects:TENANT}:expiries`: sorted set of the ids by the time in milliseconds at which they expire
- `kakeya:{objects:TENANT}:sizes`: hash, bytes by id, the sum of all as `total:`, and how often one has changed as
  `changes:ID`
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.outcomes import UpdateObject
from kakeya_router.store.script_calls import in_ms


@dataclass(eq=False)
class ObjectStore:
    """All methods raise StoreUnavailable."""

    _redis: RedisConnection

    async def store(self, tenant: str, object_id: str, data: bytes, *, ttl_seconds: int, max_bytes: int) -> bool:
        """False: the tenant's objects would have more bytes than `max_bytes`, if that is not 0."""
        is_stored: int = await self._redis.script(
            "store_object",
            _keys(tenant, object_id),
            id=object_id,
            data=data,
            ttl_ms=in_ms(ttl_seconds),
            max_bytes=max_bytes,
        )
        return bool(is_stored)

    async def fetch(self, tenant: str, object_id: str) -> tuple[bytes, int] | None:
        """With its version; None where there is none."""
        name, _, sizes = _keys(tenant, object_id)
        found = await self._redis.script_bytes("fetch_object", (name, sizes), id=object_id)
        return (found[0], found[1]) if found else None

    async def update(
        self,
        tenant: str,
        object_id: str,
        data: bytes,
        *,
        version: int,
        appends: bool,
        ttl_seconds: int,
        max_object_bytes: int,
        max_bytes: int,
    ) -> tuple[UpdateObject, int]:
        """What came of it, and the object's version where it was changed.

        Args:
            appends: behind what is there, not in place of it.
            max_object_bytes: that it may have then.
            max_bytes: as of `store`.
        """
        outcome, rest = await self._redis.outcome(
            UpdateObject,
            _keys(tenant, object_id),
            id=object_id,
            version=version,
            data=data,
            appends=appends,
            ttl_ms=in_ms(ttl_seconds),
            max_object_bytes=max_object_bytes,
            max_bytes=max_bytes,
        )
        return outcome, rest[0] if rest else 0

    async def delete(self, tenant: str, object_id: str) -> bool:
        """Whether there was one."""
        num_deleted: int = await self._redis.script("delete_object", _keys(tenant, object_id), id=object_id)
        return bool(num_deleted)


def _keys(tenant: str, object_id: str) -> Sequence[str]:
    prefix = f"kakeya:{{objects:{tenant}}}:"
    return f"{prefix}object:{object_id}", f"{prefix}expiries", f"{prefix}sizes"
