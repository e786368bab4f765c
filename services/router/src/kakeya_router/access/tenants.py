"""Tenants as an operator sees them: what each may use, and what it uses in each pool."""

from collections.abc import Mapping
from dataclasses import dataclass

from kakeya_router.store.access.credential_records import QuotaRecord
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


class Tenants:
    """All methods raise StoreUnavailable.

    Args:
        default_quota: of tenants that have none of their own.
    """

    def __init__(
        self, credentials: CredentialStore, sessions: SessionLists, workers: WorkerStore, default_quota: Quota
    ) -> None:
        self._credentials = credentials
        self._sessions = sessions
        self._workers = workers
        self._default_quota = default_quota

    async def all(self) -> list[Tenant]:
        """Those that have keys, quotas of their own, or something in use; by name."""
        usage = await self._usage()
        known = {key.tenant for key in await self._credentials.keys()}
        known.update(await self._credentials.tenants_with_quota(), *usage.values())
        names = sorted(known)
        quotas = await self._credentials.quotas(names)
        return [self._tenant(name, own, usage) for name, own in zip(names, quotas, strict=True)]

    async def set_quota(self, name: str, quota: QuotaRecord | None) -> Tenant:
        """None: the defaults again. Other routers follow within a second."""
        await self._credentials.set_quota(name, quota)
        return self._tenant(name, quota.quota if quota is not None else None, await self._usage())

    async def _usage(self) -> Usage:
        return {pool: await self._sessions.usage(pool) for pool in await self._workers.pools()}

    def _tenant(self, name: str, own: Quota | None, usage: Usage) -> Tenant:
        used = {pool: tenants[name] for pool, tenants in usage.items() if name in tenants}
        return Tenant(name, own or self._default_quota, own is not None, used)
