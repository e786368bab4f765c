"""What a key is good for, and what its tenant may use."""

from dataclasses import dataclass
from enum import StrEnum

from kakeya_router.store.session_record import Hash


class Scope(StrEnum):
    """What a key is good for; `kakeya.admin.v1.Scope`."""

    SESSIONS = "sessions"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Quota(Hash):
    """What a tenant may use in each pool; 0 is no limit."""

    max_sessions: int = 0
    max_reserved_bytes: int = 0
    tokens_per_minute: int = 0


NO_LIMIT = Quota()
