"""Which worker takes a new session: a seam, found by entry point in the group "kakeya.placement"."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from kakeya_router.store.worker_record import WorkerRecord

GROUP = "kakeya.placement"

Some = Callable[[Sequence[WorkerRecord]], Sequence[WorkerRecord]]

# Of equal workers the best of a few chosen at random is nearly the best of all (of two, too); the others are for when
# it is full by then.
_FEW = 8


class Placement(Protocol):
    """Orders the workers that could take a session; the router tries them in turn until one does.

    `Search` asks for new sessions and those that come back, `Moving` for those of a worker that is emptied. It is asked
    for an order and not for one worker, since the first may be full by then. A plugin is a class without arguments.

    It may have `some(workers)`, which says whom of equal workers it is asked about at all, as they were seen last, by
    pool and id. One that has none is asked about all of them, which costs each new session O(workers).
    """

    def order(self, workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
        """The workers in the order in which they should be tried.

        Args:
            workers: those that serve the model and have room; not empty.
        """


def some_of(placement: Placement) -> Some:
    """Whom a placement is asked about."""
    some: Some = getattr(placement, "some", lambda workers: workers)
    return some


def order_for(fingerprint: str, placement: Placement, workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
    """Of some workers that can take a session those with room, as they should be tried.

    Args:
        fingerprint: of the session's history, under which it stays exact: such workers come first; empty: it has none.
    """
    roomy = [worker for worker in workers if worker.has_room]
    order = placement.order(roomy) if roomy else []
    return sorted(order, key=lambda worker: fingerprint not in ("", worker.fingerprint))


class LeastLoaded:
    """The most free bytes first: spreads sessions, so that each has the most of its worker's compute."""

    def order(self, workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
        return sorted(workers, key=lambda worker: (-worker.free_bytes, worker.pool, worker.worker_id))

    def some(self, workers: Sequence[WorkerRecord]) -> Sequence[WorkerRecord]:
        return random.sample(workers, _FEW) if len(workers) > _FEW else workers


class FirstFit:
    """The first by name that has room: packs sessions, so that the last workers can be taken away."""

    def order(self, workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
        return sorted(workers, key=lambda worker: (worker.pool, worker.worker_id))

    def some(self, workers: Sequence[WorkerRecord]) -> Sequence[WorkerRecord]:
        return workers[:_FEW]
