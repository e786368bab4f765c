"""What a session needs of the worker that gives it a lane, and for whom."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from kakeya_router.access.callers import Caller
from kakeya_router.contract.creates import CreateRequest
from kakeya_router.snapshots import past, snapshot_plan
from kakeya_router.store.keys import new_session_id
from kakeya_router.store.session_record import (
    UNSET,
    Epoch,
    Features,
    Incarnation,
    Overflow,
    PoolName,
    SessionId,
    SessionRecord,
    State,
)
from kakeya_router.store.sessions.session_changes import UNLIMITED, Limits
from kakeya_router.store.worker_record import WorkerRecord


@dataclass(frozen=True)
class Wanted:
    """A lane that is wanted: for a new session, for a fork, or for a session that comes back.

    The queue compares all of them by the same few properties, so none of them is treated better than another.

    Attributes:
        model: the one that serves it.
        pools: all whose workers serve it.
        limits: quotas of the caller.
        request: that a new session or a fork comes from.
        source: whose history it goes on with: a fork's source, or the session itself; None: it begins empty.
        earlier: the length at which it does, where it needs only the history; None: at its end, from lane to lane.
        features: that its worker has to name.
        is_interrupted: an operation is in the middle of something with it: it comes before all who begin.
        is_patient: it also waits where no worker can have it now, but one may later.
    """

    caller: Caller
    model: str
    pools: Collection[PoolName]
    limits: Limits = UNLIMITED
    request: CreateRequest = field(default_factory=CreateRequest)
    source: SessionRecord | None = None
    earlier: int | None = None
    features: Features = frozenset()
    is_interrupted: bool = False
    is_patient: bool = False

    def fits(self, worker: WorkerRecord) -> bool:
        """Whether the worker, if it has room, may take the session."""
        return self.incarnation in ("", worker.incarnation) and self.is_served_by(worker)

    def is_best_at(self, worker: WorkerRecord) -> bool:
        """Likewise, and whether no other fingerprint would be better."""
        return self.fits(worker) and self.fingerprint in ("", worker.fingerprint)

    def is_served_by(self, worker: WorkerRecord) -> bool:
        """Whether it may at least once the source, where that has to be on the same worker, is there."""
        return not worker.lacks(self.features) and self.would_be_served_by(worker)

    def would_be_served_by(self, worker: WorkerRecord) -> bool:
        """Whether it may, whatever features it needs."""
        source = self.source
        if source is None:
            return worker.model == self.model and self.fingerprint in ("", worker.fingerprint)
        if worker.pool != source.pool or not worker.continues(self.fingerprint, self.model_digest):
            return False
        if self.request.fork_from is not None or self.earlier is None:  # by the same rule as in the queue
            return worker.model == self.model and self.snapshot_store in ("", worker.snapshot_store)
        readable = snapshot_plan.in_store(source, worker.snapshot_store)
        return bool(snapshot_plan.chains(readable, source.journal_start, self.earlier))

    @property
    def source_id(self) -> SessionId:
        """Empty: it begins empty."""
        return SessionId("") if self.source is None else self.source.session_id

    @property
    def incarnation(self) -> Incarnation:
        """The only one that can take it; empty: others may."""
        return self.source.incarnation if self.source is not None and self.earlier is None else Incarnation("")

    @property
    def fingerprint(self) -> str:
        """Of the workers that can take it; empty: any."""
        return self.request.fingerprint if self.source is None else self.source.fingerprint

    @property
    def inexact_resume(self) -> bool:
        """A fork's history may be of several fingerprints where its source's may be."""
        return self.request.inexact_resume or (self.source is not None and self.source.inexact_resume)

    @property
    def model_digest(self) -> str:
        """Of the model whose workers can take it whatever their fingerprint; empty: none."""
        if self.source is None or self.request.fingerprint or not self.inexact_resume:
            return ""
        return self.source.model_digest

    @property
    def snapshot_store(self) -> str:
        """The one that its worker has to read; empty: none."""
        if self.source is None or self.earlier is None:
            return ""
        return past.needed_store(self.source, self.earlier)

    def record(self, worker: WorkerRecord) -> SessionRecord:
        """Of the new session on this worker; a fork has its source's lane and end."""
        request, source = self.request, self.source
        record = SessionRecord(
            session_id=new_session_id(worker.pool),
            pool=worker.pool,
            state=State.OPENING,
            model=worker.model,
            worker_id=worker.worker_id,
            epoch=Epoch(1),
            incarnation=worker.incarnation,
            address=worker.address,
            sink=_or_unset(request.sink),
            window=_or_unset(request.window),
            pin=_or_unset(request.pin),
            on_overflow=request.on_overflow or Overflow.EVICT,
            speculation=request.speculation,
            exact=worker.exact,
            fingerprint=worker.fingerprint,
            model_digest=worker.model_digest,
            inexact_resume=self.inexact_resume,
            ephemeral=request.ephemeral,
            park_after_ms=(request.park_after_seconds or 0) * 1000,
            disposable=request.disposable,
            head=request.head,
            cheap_tokens=worker.cheap_tokens,
            vocab_size=worker.vocab_size,
            tenant=self.caller.tenant,
            key_id=self.caller.key_id,
            reserved_bytes=worker.lane_bytes,
            ttl_ms=(request.ttl_seconds or 0) * 1000,
            label=request.label,
            eos=",".join(map(str, request.eos_token_ids)),
            request_id=request.request_id,
            request_digest=request.digest,
        )
        if source is None:
            return record
        return replace(
            record,
            sink=source.sink,
            window=source.window,
            on_overflow=source.on_overflow,
            speculation=record.speculation or source.speculation,
            eos=record.eos or source.eos,
            exact=source.exact and source.fingerprint == worker.fingerprint,
        )


def _or_unset(number: int | None) -> int:
    return UNSET if number is None else number
