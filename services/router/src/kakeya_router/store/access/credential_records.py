"""What the hashes of keys and join tokens in Redis say."""

import functools
from dataclasses import dataclass
from typing import ClassVar

from kakeya_router.store.access.credentials import Kind
from kakeya_router.store.access.rights import Scope
from kakeya_router.store.session_record import Hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential(Hash):
    """What keys and tokens have in common.

    Attributes:
        credential_id: names it; not secret.
        digest: `credentials.digest` of its secret; "" where the reader does not need it.
        created_ms, expires_ms: Redis time; expires_ms 0 is never.
    """

    kind: ClassVar[Kind]
    credential_id: str
    digest: str
    label: str = ""
    created_ms: int = 0
    expires_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Credential):
    """A key of a tenant; `scope_names` are separated by commas, those of a newer router's own are ignored."""

    kind = Kind.KEY
    tenant: str
    scope_names: str

    @property
    def scopes(self) -> frozenset[Scope]:
        return _scopes(self.scope_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token(Credential):
    """A join token; `pool`, `worker_id` and `model` are the only ones that it admits, empty: any."""

    kind = Kind.TOKEN
    pool: str = ""
    worker_id: str = ""
    model: str = ""


# Each call asks for them.
@functools.lru_cache
def _scopes(names: str) -> frozenset[Scope]:
    known = names.split(",")
    return frozenset(scope for scope in Scope if scope.value in known)
