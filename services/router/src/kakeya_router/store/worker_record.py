"""What the hash of a worker in Redis says."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from kakeya_router.store.session_record import (
    TUNNELLED,
    Features,
    Hash,
    Incarnation,
    PoolName,
    SessionRecord,
    WorkerId,
)
from kakeya_shared.contract.features import GRAMMAR_LIBRARY

# What parking and resuming cost beside the bytes: a file is synced, Redis asked, a lane opened; and the rate at which a
# snapshot comes to a store and back from it.
_PARKING_SECONDS, _STORE_BYTES_PER_SECOND = 0.05, 200e6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord(Hash):
    """One incarnation of a worker: what it said when it joined, and its ledger.

    Attributes:
        weights: mode of the weights; `dtype` is the KV's.
        exact, fingerprint: see `kakeya.v1.CreateSessionResponse`.
        tokenizer_digest: of its checkpoint's tokenizer, see `kakeya.v1.Model`.
        model_digest: equal for workers that serve the same model, in whichever mode; empty: not known.
        snapshot_store: of its snapshot store, equal for workers that read each other's; empty: it has none.
        snapshot_free_bytes: on the disk of that store when it joined; 0: not known.
        prefill_tokens_per_second: as it measured at its start; 0: not known.
        features: what it can do, by the names of `kakeya_shared.contract.features`, separated by commas.
        reserved_bytes: lanes reserved for sessions.
        kv_live_bytes: the sum over the session records, kept by their changes.
        heartbeat_number: of its last heartbeat; 0: it has none, or is an older worker, which does not number them.
        reported_kv_live_bytes: the worker's own sum at that heartbeat.
        rss_bytes: resident memory of its process at its last heartbeat; 0: not known.
        heartbeat_ms: Redis time of the last heartbeat.
        token_id: of the join token with which it joined; empty: none was asked for.
        tunnels: names of the routers that its tunnels end at, separated by commas, as its last heartbeat said.
        leaving: it shuts down, as its last heartbeat said.
        drain_asked: an operator wants it drained.
    """

    worker_id: WorkerId
    incarnation: Incarnation
    pool: PoolName
    model: str
    address: str
    backend: str
    dtype: str
    slab_bytes: int
    lane_bytes: int
    num_lanes: int
    sink: int
    window: int
    kv_bytes_per_token: int
    vocab_size: int
    num_threads: int
    weights: str = ""
    fingerprint: str = ""
    exact: bool = False
    tokenizer_digest: str = ""
    model_digest: str = ""
    snapshot_store: str = ""
    snapshot_free_bytes: int = 0
    prefill_tokens_per_second: int = 0
    features: str = ""
    reserved_bytes: int = 0
    kv_live_bytes: int = 0
    heartbeat_number: int = 0
    reported_kv_live_bytes: int = 0
    rss_bytes: int = 0
    num_sessions: int = 0
    heartbeat_ms: int = 0
    token_id: str = ""
    tunnels: str = ""
    leaving: bool = False
    drain_asked: bool = False

    @property
    def draining(self) -> bool:
        """Whether it is drained: it is given no session then."""
        return self.leaving or self.drain_asked

    @property
    def free_bytes(self) -> int:
        return self.slab_bytes - self.reserved_bytes

    @property
    def is_tunnelled(self) -> bool:
        """Whether it is reached through tunnels: nobody can dial it."""
        return self.address.startswith(TUNNELLED)

    @property
    def tunnel_routers(self) -> list[str]:
        return [router for router in self.tunnels.split(",") if router]

    @property
    def has_room(self) -> bool:
        if self.is_tunnelled and not self.tunnels:  # prelude/ledger.lua (`takes_nobody`) says the same
            return False
        return not self.draining and self.free_bytes >= self.lane_bytes

    @property
    def cheap_tokens(self) -> int:
        """As much history as it prefills in less time than a session takes to be parked and resumed; 0: not known."""
        if not self.prefill_tokens_per_second:
            return 0
        prefill_seconds = 1 / self.prefill_tokens_per_second  # of a token
        parking_seconds = 2 * self.kv_bytes_per_token / _STORE_BYTES_PER_SECOND  # likewise, as long as it is kept
        num_kept = self.sink + self.window
        if prefill_seconds * num_kept > _PARKING_SECONDS + parking_seconds * num_kept:
            return int(_PARKING_SECONDS / (prefill_seconds - parking_seconds))
        return int((_PARKING_SECONDS + parking_seconds * num_kept) / prefill_seconds)

    @property
    def feature_names(self) -> list[str]:
        return [feature for feature in self.features.split(",") if feature]

    @property
    def grammar_library(self) -> Features:
        """By which it masks tokens: no other goes on with what it has begun."""
        return frozenset(feature for feature in self.feature_names if feature.startswith(GRAMMAR_LIBRARY))

    def lacks(self, features: Collection[str]) -> list[str]:
        """Those of some features that it does not name; prelude/queue.lua (`can_use`) says the same."""
        return sorted(set(features).difference(self.feature_names)) if features else []

    def continues(self, fingerprint: str, model_digest: str) -> bool:
        """Whether it can go on with what was computed under a fingerprint.

        Args:
            model_digest: of the model, where another fingerprint of it will do; empty where not. prelude/queue.lua
                (`can_use`) says the same.
        """
        return self.fingerprint == fingerprint or (model_digest != "" and self.model_digest == model_digest)

    def can_hold(self, session: SessionRecord) -> bool:
        """Whether it can go on with a session of its pool."""
        return self.continues(session.fingerprint, session.inexact_digest)

    def holding(self, session: SessionRecord) -> SessionRecord:
        """A session that it goes on with, on a lane of its own."""
        return replace(
            session,
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            address=self.address,
            reserved_bytes=self.lane_bytes,
            fingerprint=self.fingerprint,
            exact=session.exact and self.fingerprint == session.fingerprint,
        )
