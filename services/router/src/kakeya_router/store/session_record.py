"""What the hash of a session in Redis says, the types of its ids, and how hashes are read."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, NewType, Self

SessionId = NewType("SessionId", str)
PoolName = NewType("PoolName", str)
WorkerId = NewType("WorkerId", str)
Incarnation = NewType("Incarnation", str)
"""Of a worker: one life of its process."""
Epoch = NewType("Epoch", int)
"""Of a lane's lease."""
Claim = NewType("Claim", str)
"""Proves whose a session is: an operation's, an opening's or a closing's."""

Features = frozenset[str]
"""Of a worker: names of `kakeya_shared.contract.features`."""

TUNNELLED = "tunnel:"
"""Before the incarnation, the address of a worker that is reached through tunnels."""

UNSET = -1
"""Of a number that the client left to the worker."""


class State(StrEnum):
    """Of a session; `kakeya.v1.SessionState`."""

    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    FAILED = "failed"
    PARKED = "parked"
    LOST = "lost"


class Overflow(StrEnum):
    """`kakeya.v1.OverflowPolicy`."""

    EVICT = "evict"
    REFUSE = "refuse"


class Hash:
    """A dataclass of str, int, NewType of these, bool and StrEnum fields that is kept as one Redis hash."""

    @classmethod
    def from_hash(cls, values: Mapping[str, str]) -> Self:
        """Reads a hash; a missing field keeps its default, unknown ones are a newer router's and are ignored."""
        return cls(**{name: read(values[name]) for name, read in _readers(cls).items() if name in values})  # type: ignore[arg-type]  # any class is hashable

    @classmethod
    def from_pairs(cls, flat: Iterable[str]) -> Self:
        """As `from_hash`, of field, value, field, value, ..., as scripts answer."""
        values = iter(flat)
        return cls.from_hash(dict(zip(values, values, strict=True)))

    def to_pairs(self) -> list[Any]:
        """The reverse of `from_pairs`, as scripts take it."""
        return [each for f in fields(self) for each in (f.name, getattr(self, f.name))]  # type: ignore[arg-type]  # subclasses are dataclasses


@cache
def _readers(record: Any) -> dict[str, Callable[[str], Any]]:
    """What makes a field's value of its text, by the field's name; every call reads records."""
    return {field.name: _reader(field.type) for field in fields(record)}


def _reader(kind: Any) -> Callable[[str], Any]:
    return _is_true if kind is bool else getattr(kind, "__supertype__", kind)  # a NewType converts nothing


def _is_true(text: str) -> bool:
    return text == "1"


@dataclass(frozen=True, slots=True)
class LaneState:
    """What a worker has committed of a session, as it last said.

    Attributes:
        retained: the part of the history that is kept: "0-4,100-164" are its tokens 0..3 and 100..163.
        num_rewinds: how often the lane was taken back.
        history_digest: of what it holds; None: not known.
    """

    history_length: int = 0
    kv_live_bytes: int = 0
    retained: str = ""
    num_rewinds: int = 0
    history_digest: int | None = None

    @property
    def num_dropped_tokens(self) -> int:
        """Tokens of the history that are not kept."""
        return self.history_length - sum(map(len, parse_ranges(self.retained)))


EMPTY_LANE = LaneState()


def parse_ranges(retained: str) -> list[range]:
    """The ranges of a history that a text names."""
    return [range(*map(int, part.split("-"))) for part in retained.split(",") if part]


def ranges_text(ranges: Iterable[range]) -> str:
    """The reverse of `parse_ranges`."""
    return ",".join(f"{part.start}-{part.stop}" for part in ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord(Hash):
    """One session.

    Attributes:
        incarnation: of the worker that holds the lane; with another one alive the session is lost.
        epoch: of the lease; rises with each new one.
        sink, window: as asked for, UNSET where left to the worker; once open, as the worker chose.
        pin: as asked for, or UNSET; once open, `sink` covers it.
        exact, fingerprint: the worker's; once it has gone on under another fingerprint, `exact` is False for good.
        model_digest: of the model; empty: not known.
        ephemeral: it is closed when its first Generate has ended, and has no snapshots.
        inexact_resume: it may be resumed under another fingerprint of the model.
        park_after_ms: how long it may be idle on its lane; 0: however long.
        disposable: its client can make it anew; see `kakeya.v1.CreateSessionRequest`.
        head: it is what its forks begin with; it is disposable, too.
        cheap_tokens: as much history as costs less to prefill anew than to park, on the worker that it was opened on.
        group: which one it is of, of which its tenant keeps some: "head", or the place that it branched off at; empty:
            of none.
        history_length: what the worker has committed, as it last said; `kv_live_bytes` and `retained` with it.
        journal_length: tokens of the history, of which the lane may lack the last: they are journaled first.
        journal_start: history index of the first token that the journal still holds.
        journal_digests: of the history up to both, as prelude/journal.lua (`read_journal`) keeps them.
        retained: the part of the history that is kept, see `LaneState`.
        boundaries: history lengths at which the last turns ended, separated by commas; at most four.
        lane_rewinds: how often its lane was taken back; what a heartbeat says from before is stale.
        num_rewinds: how often its history was taken back; a snapshot that was begun before is of no use.
        snapshots: see `stored_snapshots`.
        snapshot_store: the one that they are in.
        inherited: snapshots of the session that it branched off from, up to there, in `inherited_store`; it names them
            until its own make them superfluous, and as long as it does nobody removes them.
        operation_number: rises with each operation and each router that takes one over; workers refuse what comes from
            one before.
        operation_id, operation_start, operation_seed: the latest operation, by the id that its client knows, the
            history length that it began at, and the seed of a Generate.
        operation_features: that its workers have to name from its beginning on, beside those that its request needs,
            separated by commas.
        tenant, key_id: whose it is, and the key that made it; empty where no keys are asked for.
        eos: EOS token ids, separated by commas.
        reserved_bytes: of its lane; 0 once the lane is given back.
        idle_since_ms: Redis time of the end of the last operation.
        append_start, append_end, append_digest: history lengths around the last append that was committed as a
            whole, and its `token_digest`; they tell a repeated append from a conflicting one.
        request_digest: of the request that created it, or several, separated by spaces; another one under the same
            request_id, which has none of these, is refused.
        shared: another CreateSession with the same request_id was answered with this session.
        lane_place: "EPOCH LANE": the number that its lane has on its worker, under that epoch.
        last_turn: figures of its latest answer, see `last_turn`.
        drafted_tokens, accepted_tokens: drafts that were checked, and right, over all answers that came to their end.
    """

    session_id: SessionId
    pool: PoolName
    state: State
    model: str
    worker_id: WorkerId
    incarnation: Incarnation
    address: str
    epoch: Epoch
    sink: int
    window: int
    vocab_size: int
    reserved_bytes: int
    ttl_ms: int
    pin: int = UNSET
    on_overflow: Overflow = Overflow.EVICT
    speculation: str = ""
    exact: bool = False
    fingerprint: str = ""
    model_digest: str = ""
    inexact_resume: bool = False
    ephemeral: bool = False
    park_after_ms: int = 0
    disposable: bool = False
    head: bool = False
    cheap_tokens: int = 0
    group: str = ""
    tenant: str = ""
    key_id: str = ""
    label: str = ""
    eos: str = ""
    request_id: str = ""
    request_digest: str = ""
    history_length: int = 0
    journal_length: int = 0
    journal_start: int = 0
    journal_digests: str = ""
    kv_live_bytes: int = 0
    retained: str = ""
    boundaries: str = ""
    num_rewinds: int = 0
    lane_rewinds: int = 0
    snapshots: str = ""
    snapshot_store: str = ""
    inherited: str = ""
    inherited_store: str = ""
    operation_number: int = 0
    operation_id: str = ""
    operation_start: int = 0
    operation_seed: int = 0
    operation_features: str = ""
    inv1_violations: int = 0
    inv2_violations: int = 0
    idle_since_ms: int = 0
    append_start: int = -1
    append_end: int = -1
    append_digest: str = ""
    shared: bool = False
    lane_place: str = ""
    last_turn: str = ""
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def is_tunnelled(self) -> bool:
        """Whether its worker is reached through tunnels."""
        return self.address.startswith(TUNNELLED)

    @property
    def eos_token_ids(self) -> list[int]:
        return [int(token_id) for token_id in self.eos.split(",") if token_id]

    @property
    def lane(self) -> LaneState:
        """What the worker has committed, as it last said."""
        return LaneState(self.history_length, self.kv_live_bytes, self.retained)

    def with_lane(self, lane: LaneState) -> Self:
        """With what the worker has committed."""
        return replace(
            self, history_length=lane.history_length, kv_live_bytes=lane.kv_live_bytes, retained=lane.retained
        )

    @property
    def num_dropped_at_start(self) -> int:
        """Those that were not kept when the latest operation began; its lane has taken in more since."""
        return max(0, self.operation_start - self.sink - self.window)

    def can_be_stored(self, snapshot_store: str) -> bool:
        """Whether it can be written into a worker's store."""
        return bool(snapshot_store) and not self.ephemeral

    def digest_at(self, length: int) -> int | None:
        """Of its history at a length; see `kakeya_shared.contract.history_digest`. None: not known."""
        start, at_start, end, at_end, num_rewinds = (self.journal_digests or 4 * " ").split(" ")
        known = {start: at_start, end: at_end} if num_rewinds == str(self.num_rewinds) else {}
        digest = known.get(str(length), "")
        return int(digest, 16) if digest else None

    @property
    def pinned_features(self) -> Features:
        """That workers have to name on which its latest operation goes on."""
        return frozenset(feature for feature in self.operation_features.split(",") if feature)

    @property
    def turn_boundaries(self) -> list[int]:
        return [int(length) for length in self.boundaries.split(",") if length]

    @property
    def is_recoverable(self) -> bool:
        """Whether it can be resumed when its lane is gone."""
        return self.journal_start == 0 or bool(self.snapshots or self.inherited)

    @property
    def holds_lane(self) -> bool:
        return self.reserved_bytes > 0

    @property
    def inexact_digest(self) -> str:
        """Of the model whose workers can have it under any fingerprint; empty: only those of its own can."""
        return self.model_digest if self.inexact_resume else ""

    def without_lane(self) -> Self:
        """What becomes of it now that its lane is gone."""
        return replace(
            self,
            state=State.PARKED if self.is_recoverable and self.state is State.OPEN else State.LOST,
            worker_id=WorkerId(""),
            reserved_bytes=0,
            kv_live_bytes=0,
            retained="",
            history_length=self.journal_length,
        )
