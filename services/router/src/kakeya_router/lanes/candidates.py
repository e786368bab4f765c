"""Which workers a new session may be opened on, and what to say when none of them does."""

from collections.abc import Sequence

from kakeya_router.contract import refusals, validation
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.errors.tree import InvalidField, KakeyaError, NoCapacity, NoWorker

_RETRY_AFTER_SECONDS = 1.0
# An error travels in headers, which gRPC bounds at 8 KiB; float workers may have a fingerprint each.
_NUM_LISTED = 8


class SourceChanged(NoWorker):
    """The source of a fork has gone on, was parked or moved since it was looked at: another look finds it."""


def of_model(workers: Sequence[WorkerRecord], model: str) -> list[WorkerRecord]:
    """The workers that serve a model; without a name, the only one that is served.

    Raises:
        InvalidField: several are served and none is named.
        NoWorker: none serves it.
    """
    models = sorted({worker.model for worker in workers})
    if not model and len(models) > 1:
        raise validation.invalid("model", f"several are served, name one of: {_listed(models)}")
    serving = [worker for worker in workers if not model or worker.model == model]
    if not serving:
        raise no_worker(f"the model {model!r} (served: {_listed(models) or 'none'})" if model else "any model")
    return serving


def of_wanted(workers: Sequence[WorkerRecord], wanted: Wanted) -> list[WorkerRecord]:
    """Those that the session may be opened on, if they have room.

    Raises:
        NoWorker: none has the fingerprint that is asked for, reads the snapshots or has the features that are needed.
        SourceChanged: it is a fork, and the worker that has its source's lane is gone.
    """
    fitting = list(filter(wanted.fits, workers))
    if fitting:
        return fitting
    if lacking := without_features(workers, wanted):
        raise lacking
    if wanted.incarnation:
        raise source_changed()
    if wanted.source is not None:
        raise no_worker("the model with the fingerprint of that session, and reads its snapshots")
    served = sorted({worker.fingerprint for worker in workers if worker.model == wanted.model})
    raise no_worker(f"the model with that fingerprint (served: {_listed(served)})")


def without_features(workers: Sequence[WorkerRecord], wanted: Wanted) -> NoWorker | None:
    """Which features every worker lacks, one or another, that could take the session but for these."""
    lacking = [worker.lacks(wanted.features) for worker in workers if wanted.would_be_served_by(worker)]
    if not lacking or not all(lacking):
        return None
    return refusals.no_feature(min(lacking, key=len), "every worker that could have the session")


def no_worker(what: str) -> NoWorker:
    return NoWorker(f"no worker serves {what}", retry_after_seconds=_RETRY_AFTER_SECONDS)


def no_capacity() -> NoCapacity:
    return NoCapacity("no worker has a free lane", retry_after_seconds=refusals.crowd_retry_seconds())


def unreachable() -> NoWorker:
    return NoWorker("no worker that serves the model answers", retry_after_seconds=_RETRY_AFTER_SECONDS)


def source_changed() -> SourceChanged:
    message = "the session that is branched off from changes each time that a worker is about to copy it"
    return SourceChanged(message, retry_after_seconds=_RETRY_AFTER_SECONDS)


def cannot_fork() -> InvalidField:
    """Not worth another try: the source stays where it is."""
    return validation.invalid("fork_from", "the worker that holds the source is of an older version, and cannot fork")


def verdict(refused: Sequence[KakeyaError]) -> KakeyaError:
    """What the client is told when every candidate has refused.

    What is invalid, or cannot be read, is so only where all say it: a worker that is full or away might have held the
    session.
    """
    if len({type(refusal) for refusal in refused}) == 1:
        return refused[0]
    if any(isinstance(refusal, NoCapacity) for refusal in refused):
        return no_capacity()
    return unreachable()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NUM_LISTED]) + (", ..." if len(names) > _NUM_LISTED else "")
