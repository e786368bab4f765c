"""The names of all keys in Redis.

Keys of one pool share the hash tag `{pool}`, so that every script touches one slot of a Redis Cluster. Only the layout,
the two lists that span pools and what routers say of their tunnels are untagged.
"""

import re
import secrets
from collections.abc import Sequence
from functools import lru_cache

from kakeya_router.store.session_record import Incarnation, PoolName, SessionId, SessionRecord, WorkerId

LAYOUT = 1
"""The layout of the data in Redis as this router writes it: which keys there are, and what stands in them. It rises
where routers of the version before could not work on the data.
"""

SCHEMA = "kakeya:schema"
"""String: the layout that the data has; a router writes it where it is missing."""

POOLS = "kakeya:pools"
"""Set: names of the pools that have workers or sessions."""

ROOM = "kakeya:room"
"""Channel: names of pools in which a waiter in the queue may be the first at a worker with room now."""

CHANGED = "kakeya:changed"
"""Channel: ids of sessions that have changed; of one with a running operation its tokens are not announced."""

ROUTERS = "kakeya:routers"
"""Sorted set: addresses of the running routers by the time, in milliseconds, until which they count as running."""

TUNNEL_PORTS = "kakeya:tunnel_ports"
"""Hash: of each running router that has one its tunnel port, HOST:PORT, by the router's address."""

TUNNEL_SECRET = "kakeya:tunnel_secret"  # noqa: S105  # the key's name
"""String: by what routers know each other at their tunnel ports."""

MAX_SESSION_ID_LENGTH = 128
"""A pool of 63 letters, a dot and 22 of base64url are 86."""

POOL_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SESSION_ID = re.compile(rf"(?P<pool>{POOL_NAME.pattern})\.[A-Za-z0-9_-]+")


def new_session_id(pool: PoolName) -> SessionId:
    """An id that carries its pool and cannot be guessed: 128 random bits."""
    return SessionId(f"{pool}.{secrets.token_urlsafe(16)}")


def pool_of(session_id: str) -> PoolName | None:
    """The pool that an id carries, or None where no router ever issued such an id."""
    match = _SESSION_ID.fullmatch(session_id) if len(session_id) <= MAX_SESSION_ID_LENGTH else None
    return PoolName(match["pool"]) if match else None


class PoolKeys:
    """The keys of one pool."""

    def __init__(self, pool: PoolName) -> None:
        self.prefix = prefix = f"kakeya:{{{pool}}}:"
        """Of all their names."""
        self.workers = f"{prefix}workers"
        """Sorted set: worker ids by the end of their lease in milliseconds."""
        self.lost = f"{prefix}lost"
        """Set: incarnations that are gone while some of their sessions are not yet marked LOST."""
        self.expiry = f"{prefix}expiry"
        """Sorted set: session ids by the time in milliseconds at which the reaper takes them."""
        self.heirs = f"{prefix}heirs"
        """Sorted set: "FILE|SESSION" for each snapshot of another session that a session has inherited, all with score
        0 and so in the order of their text.
        """
        self.usage = f"{prefix}usage"
        """Hash: lanes and their bytes by tenant ("TENANT|sessions", "TENANT|bytes") and lanes by key
        ("key:ID|sessions").
        """
        self.queue = f"{prefix}queue"
        """Sorted set: the queue, "TENANT|ticket|waiter id", all with score 0 and so in the order of their text."""
        self.waiters = f"{prefix}waiters"
        """Hash: of each waiter its place, what it wants and the end of its lease ("ID|member", "ID|wants",
        "ID|lease_until_ms"), the last ticket, and when the queue was last cleared of lapsed ones (`purged_ms`).
        """
        self.evicted = f"{prefix}evicted"
        """Sorted set: ids of the waiters that made way in a full queue by the time; forgotten after a minute."""
        self.idle = f"{prefix}idle"
        """Sorted set: ids of the open sessions without an operation by the time of their last one's end."""
        self.to_park = f"{prefix}to_park"
        """Sorted set: ids of the idle sessions that are parked some time, by the time at which they are to be."""
        self.spare = f"{prefix}spare"
        """Sorted set: ids of the idle sessions that make room, in their order (`be_idle` of prelude/session.lua)."""
        self.parked = f"{prefix}parked"
        """Sorted set: ids of the parked sessions that are disposable, by the time of their last operation's end."""
        self.groups = f"{prefix}groups"
        """Sorted set: "TENANT|GROUP|SESSION" for each session of a group, of which its tenant keeps some, all with
        score 0 and so in the order of their text.
        """
        self.snapshot_bytes = f"{prefix}snapshot_bytes"
        """String: bytes of all snapshots that sessions have of their own or have inherited, each file once."""

    def spare_of(self, tenant: str) -> str:
        """Sorted set: those of `spare` that are a tenant's."""
        return f"{self.prefix}spare_of:{tenant}"

    def worker(self, worker_id: WorkerId) -> str:
        """Hash: a `WorkerRecord`."""
        return f"{self.prefix}worker:{worker_id}"

    def sessions(self, incarnation: Incarnation) -> str:
        """Set: ids of the sessions whose lanes the incarnation holds."""
        return f"{self.prefix}sessions:{incarnation}"

    def session(self, session_id: SessionId) -> str:
        """Hash: a `SessionRecord`."""
        return f"{self.prefix}session:{session_id}"

    def journal(self, session_id: SessionId) -> str:
        """String: the last tokens of the session's history, 4 bytes each, little-endian; see `SessionRecord`."""
        return f"{self.prefix}journal:{session_id}"

    def tags(self, session_id: SessionId) -> str:
        """Hash: the tags of the session's places; see prelude/tags.lua."""
        return f"{self.prefix}tags:{session_id}"

    def tagged(self, tenant: str, model: str) -> str:
        """Sorted set: "TAG|AT_US|KIND|LENGTH|SESSION" for each tag of a tenant's sessions of a model, all with score 0
        and so in the order of their text.
        """
        return f"{self.prefix}tagged:{tenant}:{model}"

    def operation(self, session_id: SessionId) -> str:
        """Hash: the session's running operation; that it exists is the session's busy flag."""
        return f"{self.prefix}op:{session_id}"

    def closed(self, session_id: SessionId) -> str:
        """String: "LENGTH TENANT" of a session that lived for one answer; lives a minute from its end."""
        return f"{self.prefix}closed:{session_id}"

    def request(self, tenant: str, request_id: str) -> str:
        """String: the session that a tenant's CreateSession request made, after a "-" if it was given up; lives 10
        minutes.
        """
        return f"{self.prefix}request:{tenant}:{request_id}"

    def tokens(self, tenant: str) -> str:
        """String: "SPENT AT_MS", the tokens that a tenant had used and its rate had not given back at that time;
        lives until it has.
        """
        return f"{self.prefix}spent:{tenant}"


def keys_of(record: SessionRecord) -> Sequence[str]:
    """The KEYS of every script on a session, in the order in which prelude/session.lua names them."""
    return _keys(
        record.pool,
        record.session_id,
        record.worker_id,
        record.incarnation,
        record.tenant,
        record.model,
        record.request_id,
    )


@lru_cache(maxsize=1024)
def _keys(
    pool: PoolName,
    session_id: SessionId,
    worker_id: WorkerId,
    incarnation: Incarnation,
    tenant: str,
    model: str,
    request_id: str,
) -> Sequence[str]:
    keys = PoolKeys(pool)
    return (
        keys.session(session_id),
        keys.operation(session_id),
        keys.worker(worker_id),
        keys.sessions(incarnation),
        keys.expiry,
        keys.request(tenant, request_id),
        keys.usage,
        keys.queue,
        keys.waiters,
        keys.idle,
        keys.tokens(tenant),
        keys.journal(session_id),
        keys.tags(session_id),
        keys.tagged(tenant, model),
        keys.to_park,
        keys.spare,
        keys.spare_of(tenant),
        keys.parked,
        keys.groups,
    )


def journal_keys_of(record: SessionRecord) -> Sequence[str]:
    """The KEYS of extend_journal.lua, which runs every few tokens: all those of a session take a quarter more."""
    return _journal_keys(record.pool, record.session_id, record.worker_id, record.tenant, record.model)


@lru_cache(maxsize=1024)
def _journal_keys(pool: PoolName, session_id: SessionId, worker_id: WorkerId, tenant: str, model: str) -> Sequence[str]:
    keys = PoolKeys(pool)
    return (
        keys.session(session_id),
        keys.operation(session_id),
        keys.worker(worker_id),
        keys.journal(session_id),
        keys.tags(session_id),
        keys.tagged(tenant, model),
    )
