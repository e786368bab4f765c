"""Tenants as an operator sees them: what each may use, and what it uses in each pool."""

from collections.abc import Mapping
from dataclasses import dataclass

from kakeya_router.store.access.credential_records import Key
from kakeya_router.store.access.credential_store import CredentialStore
from kakeya_router.store.access.rights import Quota
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.sessions.session_lists import SessionLists, TenantUsage

Usage = Mapping[str, Mapping[str, TenantUsage]]
"""By pool and tenant."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant; `usage` by pool, of pools where it has something."""

    name: str
    quota: Quota
    has_own_quota: bool
    usage: Mapping[str, TenantUsage]


@dataclass(frozen=True, slots=True)
class Tenants:
    """Tenants as the operators' service lists them and changes their quotas; no record of a tenant is needed.

    There are those that have keys, quotas of their own, or something in use; what they use is read off the ledger of
    each pool. All methods raise StoreUnavailable.

    Args:
        default_quota: of tenants that have none of their own.
    """

    _credentials: CredentialStore
    _sessions: SessionLists
    _workers: WorkerStore
    _default_quota: Quota

    async def all(self) -> list[Tenant]:
        """By name."""
        usage = await self._usage()
        known = {key.tenant for key in await self._credentials.all(Key)}
        known.update(await self._credentials.tenants_with_quota(), *usage.values())
        names = sorted(known)
        quotas = await self._credentials.quotas(names)
        return [self._tenant(name, own, usage) for name, own in zip(names, quotas, strict=True)]

    async def set_quota(self, name: str, quota: Quota | None) -> Tenant:
        """None: the defaults again. Other routers follow within a second."""
        await self._credentials.set_quota(name, quota)
        return self._tenant(name, quota, await self._usage())

    async def _usage(self) -> Usage:
        return {pool: await self._sessions.usage(pool) for pool in await self._workers.pools()}

    def _tenant(self, name: str, own: Quota | None, usage: Usage) -> Tenant:
        used = {pool: tenants[name] for pool, tenants in usage.items() if name in tenants}
        return Tenant(name, own or self._default_quota, own is not None, used)
