"""Tags of places, by which callers find their sessions again: `TagTurn` and `FindSession`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from kakeya_router.access import callers
from kakeya_router.contract import refusals
from kakeya_router.contract.tags import FindRequest, Found, TagRequest
from kakeya_router.lanes import candidates
from kakeya_router.snapshots import past
from kakeya_router.store.outcomes import TagTurn
from kakeya_router.store.session_record import PoolName, SessionId, SessionRecord, State
from kakeya_router.store.sessions.stored_tags import Entry
from kakeya_router.store.sessions.tag_store import Tagged, TagStore
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet

# Sessions that a search looks at and passes over, since they cannot be gone on with at the place that a tag names. It
# comes to few: a session that ends takes its tags along.
_MAX_PASSED = 16
# Which workers serve a model is looked at so often: on one that has come since, nothing has been tagged for long.
_SERVED_SECONDS = 1.0


Serving = Mapping[PoolName, Sequence[WorkerRecord]]
"""The workers that serve a model, by pool."""


@dataclass(eq=False, slots=True)
class Tagging:
    """Tags places and finds them; called by `RuntimeService`."""

    _store: TagStore
    _fleet: Fleet
    _: KW_ONLY
    default_model: str
    _served: dict[str, tuple[float, str, Serving]] = field(default_factory=dict, init=False)

    async def tag(self, record: SessionRecord, request: TagRequest) -> None:
        """Gives a place of a session tags.

        Raises:
            BoundaryNotReachable: the place is not there any more, or never was.
            OperationRunning: the answer whose end it is to be has not ended.
            SessionNotFound, WorkerLost, InvariantViolated, StoreUnavailable
        """
        answer = await self._store.tag(record, request.place, request.tags, request.op_id)
        match answer.outcome:
            case TagTurn.TAGGED:
                return
            case TagTurn.ELSEWHERE:
                raise past.not_reachable(answer.record, request.place.length)
            case refused:
                raise refusals.refusal(refused, answer.record)

    async def find(self, request: FindRequest) -> Found | None:
        """The caller's session that the first tag names which names one; of equal tags the latest counts.

        One that no worker can go on with, as where the model has other weights by now, is passed over, unless it is
        the one that is to be looked at.

        Raises:
            InvalidField: several models are served and none is named.
            NoWorker: no worker serves it.
            SessionNotFound: the one session that is to be looked at is not there.
            StoreUnavailable
        """
        if request.session_id:
            return await self._in_session(callers.check_issued(request.session_id), request.tags)
        model, serving = await self._serving(request.model or self.default_model)
        found = [each for pool in serving if (each := await self._in_pool(pool, serving[pool], model, request.tags))]
        return min(found, key=lambda each: (each.tag_index, -each.at_us), default=None)

    async def _serving(self, model: str) -> tuple[str, Serving]:
        """Its name, and who serves it. Raises as `find` does."""
        known, now = self._served.get(model), time.monotonic()
        if known is not None and now < known[0]:
            return known[1:]
        serving: dict[PoolName, list[WorkerRecord]] = {}
        await self._fleet.look()
        workers = candidates.of_model(self._fleet.workers(), model)
        for worker in sorted(workers, key=lambda worker: worker.pool):
            serving.setdefault(worker.pool, []).append(worker)
        self._served[model] = now + _SERVED_SECONDS, workers[0].model, serving
        return workers[0].model, serving

    async def _in_pool(
        self, pool: PoolName, workers: Sequence[WorkerRecord], model: str, tags: tuple[str, ...]
    ) -> Found | None:
        tenant, first, num_passed = callers.current().tenant, 0, 0
        for _ in range(_MAX_PASSED):
            answer = await self._store.find(pool, tenant, model, tags, first, num_passed)
            if answer is None:
                return None
            tag_index, entry, tagged = answer
            is_usable = tagged is not None and any(worker.can_hold(tagged.record) for worker in workers)
            found = _at(tagged, tag_index, entry) if tagged is not None and is_usable else None
            if found is not None:
                return found
            first, num_passed = tag_index, num_passed + 1 if tag_index == first else 1
        return None

    async def _in_session(self, session_id: SessionId, tags: tuple[str, ...]) -> Found | None:
        record = callers.callers_own(await self._store.get(session_id))
        tagged = await self._store.tagged(record.pool, session_id)
        if tagged is None:
            return None
        named = ((index, tagged.named[tag]) for index, tag in enumerate(tags) if tag in tagged.named)
        found = (_at(tagged, index, Entry(session_id, place, 0)) for index, place in named)
        return next((each for each in found if each), None)


def _at(tagged: Tagged, tag_index: int, entry: Entry) -> Found | None:
    record, length = tagged.record, entry.place.length
    is_end = length == record.journal_length
    is_open = entry.place in tagged.places and record.state in (State.OPEN, State.PARKED)
    if not is_open or not (is_end or _is_reachable(record, length)):
        return None
    return Found(
        record,
        entry.place,
        tag_index,
        entry.at_us,
        is_idle_end=is_end and not tagged.is_busy,
        is_last=all(place.length <= length for place in tagged.places),
    )


def _is_reachable(record: SessionRecord, length: int) -> bool:
    """Whether a fork or a rewind comes there; a lane that has forgotten nothing goes back by itself."""
    return past.is_reachable(record, length) or (record.holds_lane and record.lane.num_dropped_tokens == 0)
