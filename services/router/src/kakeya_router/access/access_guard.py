"""Stands before every call: what each service asks of its callers, and who the caller then is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from kakeya_router.access import audit, callers, join_permits
from kakeya_router.access.authentication import Authenticator
from kakeya_router.access.callers import ANYBODY
from kakeya_router.store.access.rights import Scope
from kakeya_shared.errors.tree import KakeyaError, PermissionDenied
from kakeya_shared.rpc.tracing import Metadata

_SCOPES: Final = {"kakeya.v1.RuntimeService": Scope.SESSIONS, "kakeya.admin.v1.AdminService": Scope.ADMIN}
"""What a key must be good for, by service."""

_JOINING: Final = frozenset({"kakeya.worker.v1.RegistryService"})
"""Services that ask for a join token."""


@dataclass(frozen=True, slots=True)
class AccessGuard:
    """A `rpc_boundary.Guard`: before a call comes to its service, it has to show a secret that is good for the service.

    Who that is, or what a worker's token permits, is the running task's from then on: see `callers`, `join_permits`.
    What no table names is open to nobody. Without `--auth keys` there is no guard.
    """

    _authenticator: Authenticator

    async def __call__(self, method: str, metadata: Metadata) -> Mapping[str, str]:
        """Makes the caller, or the permit, that of the running call; returns its name, for spans.

        Raises:
            Unauthenticated: no key or token, or none that is good.
            PermissionDenied: a good one, and not for this service.
            StoreUnavailable
        """
        service = method.removeprefix("/").partition("/")[0]
        if service in _JOINING:
            names = await self._let_worker_in(metadata)
        elif service in _SCOPES:
            names = await self._let_caller_in(method, _SCOPES[service], metadata)
        else:
            raise PermissionDenied("nobody may call this service here")
        structlog.contextvars.bind_contextvars(**names)
        return names

    async def _let_worker_in(self, metadata: Metadata) -> Mapping[str, str]:
        permit = await self._authenticator.token(metadata)
        join_permits.enter(permit)
        return {"token_id": permit.token_id}

    async def _let_caller_in(self, method: str, scope: Scope, metadata: Metadata) -> Mapping[str, str]:
        caller = ANYBODY
        try:
            caller, scopes = await self._authenticator.key(metadata)
            if scope not in scopes:
                raise PermissionDenied(f"this key has not the scope {scope.value}")
        except KakeyaError as error:
            if scope is Scope.ADMIN:
                audit.refused(caller, method, error)
            raise
        if scope is Scope.SESSIONS:
            caller = replace(caller, quota=await self._authenticator.quota(caller.tenant))
        callers.enter(caller)
        return {"tenant": caller.tenant, "key_id": caller.key_id}
