"""What the hashes of keys, join tokens and quotas in Redis say."""

import functools
from dataclasses import dataclass

from kakeya_router.store.access.rights import Quota, Scope
from kakeya_router.store.session_record import Hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential(Hash):
    """What keys and tokens have in common.

    Attributes:
        credential_id: names it; not secret.
        digest: `credentials.digest` of its secret; "" where the reader does not need it.
        created_ms, expires_ms: Redis time; expires_ms 0 is never.
    """

    credential_id: str
    digest: str
    label: str = ""
    created_ms: int = 0
    expires_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Credential):
    """A key of a tenant; `scope_names` are separated by commas, those of a newer router's own are ignored."""

    tenant: str
    scope_names: str

    @property
    def scopes(self) -> frozenset[Scope]:
        return _scopes(self.scope_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token(Credential):
    """A join token; `pool`, `worker_id` and `model` are the only ones that it admits, empty: any."""

    pool: str = ""
    worker_id: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRecord(Hash):
    """A tenant's own quota."""

    max_sessions: int = 0
    max_reserved_bytes: int = 0
    tokens_per_minute: int = 0

    @property
    def quota(self) -> Quota:
        return Quota(self.max_sessions, self.max_reserved_bytes, self.tokens_per_minute)


# Each call asks for them.
@functools.lru_cache
def _scopes(names: str) -> frozenset[Scope]:
    known = names.split(",")
    return frozenset(scope for scope in Scope if scope.value in known)
