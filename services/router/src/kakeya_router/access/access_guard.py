"""Stands before every call: what each service asks of its callers, and who the caller then is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog
from pydantic import SecretStr

from kakeya_router.access import audit, callers, join_permits
from kakeya_router.access.authentication import Authenticator
from kakeya_router.access.callers import ANYBODY
from kakeya_router.store.access.credential_store import CredentialStore
from kakeya_router.store.access.rights import Quota, Scope
from kakeya_shared.errors.tree import KakeyaError, PermissionDenied
from kakeya_shared.rpc.tracing import Metadata

_log = structlog.get_logger()

_SCOPES: Final = {"kakeya.v1.RuntimeService": Scope.SESSIONS, "kakeya.admin.v1.AdminService": Scope.ADMIN}
"""What a key must be good for, by service."""

WATCH: Final = "/kakeya.admin.v1.AdminService/Watch"

TUNNEL: Final = "/kakeya.worker.v1.RegistryService/Tunnel"

_OPEN_TO_TENANTS: Final = frozenset({WATCH})
"""Methods that ask for a good key only: what they show depends on whose it is."""

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
            caller = replace(caller, is_operator=Scope.ADMIN in scopes)
            if scope not in scopes and method not in _OPEN_TO_TENANTS:
                raise PermissionDenied(f"this key has not the scope {scope.value}")
        except KakeyaError as error:
            if scope is Scope.ADMIN:
                audit.refused(caller, method, error)
            raise
        if scope is Scope.SESSIONS:
            caller = replace(caller, quota=await self._authenticator.quota(caller.tenant))
        callers.enter(caller)
        return {"tenant": caller.tenant, "key_id": caller.key_id}


def guard(
    store: CredentialStore,
    default_quota: Quota,
    *,
    auth: str,
    admin_key: SecretStr | None,
    join_token: SecretStr | None,
) -> AccessGuard | None:
    """None where no keys are asked for: then everybody is `callers.ANYBODY`, and any worker may join."""
    if auth == "none":
        return None
    if admin_key is None:
        _log.warning("no KAKEYA_ROUTER_ADMIN_KEY: unless Redis holds a key with the scope admin, nobody can make keys")
    return AccessGuard(Authenticator(store, default_quota, admin_key=admin_key, join_token=join_token))
