"""Where routers end tunnels, and by what they know each other there."""

import secrets
from collections.abc import Collection
from dataclasses import dataclass

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import TUNNEL_PORTS, TUNNEL_SECRET


@dataclass(eq=False)
class TunnelStore:
    """All methods raise StoreUnavailable."""

    _redis: RedisConnection

    async def announce(self, router: str, port: str, running: Collection[str]) -> None:
        """Says where a router's tunnel port is, and forgets those of routers that run no more."""
        await self._redis.call(lambda redis: redis.hset(TUNNEL_PORTS, router, port))
        known = await self._redis.call(lambda redis: redis.hkeys(TUNNEL_PORTS))
        if gone := sorted(set(known) - {router, *running}):
            await self._redis.call(lambda redis: redis.hdel(TUNNEL_PORTS, *gone))

    async def forget(self, router: str) -> None:
        await self._redis.call(lambda redis: redis.hdel(TUNNEL_PORTS, router))

    async def port(self, router: str) -> str | None:
        """HOST:PORT; None: it has none, or does not run."""
        return await self._redis.call(lambda redis: redis.hget(TUNNEL_PORTS, router))

    async def secret(self) -> str:
        """What only those know who can read the store; the first to ask makes it."""
        secret = await self._redis.call(lambda redis: redis.get(TUNNEL_SECRET))
        if secret is None:
            await self._redis.call(lambda redis: redis.set(TUNNEL_SECRET, secrets.token_urlsafe(32), nx=True))
            secret = await self._redis.call(lambda redis: redis.get(TUNNEL_SECRET))
        return str(secret)
