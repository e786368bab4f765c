"""Objects that tenants have kept, in Redis.

Those of one tenant share the hash tag `{objects:TENANT}`, for none of them belongs to a pool. No pool has such a name:

- `kakeya:{objects:TENANT}:object:ID`: string, the object, until it expires
- `kakeya:{objects:TENANT}:expiries`: sorted set of the ids by the time in milliseconds at which they expire
- `kakeya:{objects:TENANT}:sizes`: hash, bytes by id, and the sum of all as `total:`
"""

from collections.abc import Sequence
from dataclasses import dataclass

from redis.client import NEVER_DECODE

from kakeya_router.store.connection import RedisConnection, in_ms


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
            size=len(data),
            ttl_ms=in_ms(ttl_seconds),
            max_bytes=max_bytes,
        )
        return bool(is_stored)

    async def fetch(self, tenant: str, object_id: str) -> bytes | None:
        """None where there is none."""
        name = _keys(tenant, object_id)[0]
        found: bytes | None = await self._redis.call(
            lambda redis: redis.execute_command("GET", name, **{NEVER_DECODE: True})
        )
        return found

    async def delete(self, tenant: str, object_id: str) -> bool:
        """Whether there was one."""
        num_deleted: int = await self._redis.script("delete_object", _keys(tenant, object_id), id=object_id)
        return bool(num_deleted)


def _keys(tenant: str, object_id: str) -> Sequence[str]:
    prefix = f"kakeya:{{objects:{tenant}}}:"
    return f"{prefix}object:{object_id}", f"{prefix}expiries", f"{prefix}sizes"
