"""A router that asks for keys, and clients that have some."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.stack import Client, Stack, answer, stack_on

ADMIN_KEY = "the-administrators-own-words"
JOIN_TOKEN = "the-workers-own-words-of-joining"
KEYED: dict[str, Any] = {"auth": "keys", "admin_key": ADMIN_KEY, "join_token": JOIN_TOKEN}


@dataclass
class Keyed:
    """`admin` and `joiner` show what the configuration names; `nobody` shows nothing."""

    stack: Stack
    address: str

    def __post_init__(self) -> None:
        self.nobody = self.client("")
        self.admin = self.client(ADMIN_KEY)
        self.joiner = self.client(JOIN_TOKEN)

    def client(self, secret: str, address: str = "") -> Client:
        return self.stack.client(address or self.address, secret)

    async def router(self, **settings: Any) -> str:
        """Starts a further router; returns its address."""
        return (await self.stack.router(**(KEYED | settings))).address

    async def key(self, tenant: str = "acme", **fields: Any) -> pb.CreateKeyResponse:
        return await answer(self.admin.admin.CreateKey(pb.CreateKeyRequest(tenant=tenant, **fields)))

    async def token(self, **fields: Any) -> pb.CreateTokenResponse:
        return await answer(self.admin.admin.CreateToken(pb.CreateTokenRequest(**fields)))

    async def tenant(self, tenant: str, **fields: Any) -> Client:
        """A client with a new key of the tenant."""
        return self.client((await self.key(tenant, **fields)).secret)

    async def keys(self, tenant: str = "") -> Sequence[pb.Key]:
        return (await answer(self.admin.admin.ListKeys(pb.ListKeysRequest(tenant=tenant)))).keys

    async def revoke(self, key_id: str) -> pb.Key:
        return (await answer(self.admin.admin.RevokeKey(pb.RevokeKeyRequest(key_id=key_id)))).key

    async def worker(self, **fields: Any) -> FakeWorker:
        return await self.stack.worker(self.joiner, **fields)


@asynccontextmanager
async def keyed_on(url: str, **settings: Any) -> AsyncIterator[Keyed]:
    async with stack_on(url) as stack:
        router = await stack.router(**(KEYED | settings))
        yield Keyed(stack, router.address)
