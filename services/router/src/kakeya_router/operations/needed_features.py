"""What an operation needs of the worker that holds its session, from its begin to its end."""

from dataclasses import dataclass

from kakeya_router.contract import refusals
from kakeya_router.operations.operation import Operation
from kakeya_router.store.connection import is_done
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_store import Taken
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.contract.features import GRAMMAR


@dataclass(frozen=True, slots=True)
class NeededFeatures:
    """An operation that has begun on a worker may need more of the next one than its request says.

    Both methods raise StoreUnavailable, and NoWorker: that which holds the session lacks something, or is gone.
    """

    _store: OperationStore
    _fleet: Fleet

    async def check(self, operation: Operation) -> None:
        """Of one that has a lane: a session that has none looks for a worker that names them."""
        await self._fleet.check_features(operation.record, operation.features)

    async def pin(self, operation: Operation) -> None:
        """Of one with the feature "grammar": its answer goes on only where tokens are masked as from its first one on.

        Raises:
            Taken
        """
        worker = await self._fleet.holder(operation.record, frozenset({GRAMMAR}))
        if worker is None:
            raise refusals.worker_gone()
        if not worker.grammar_library <= operation.features:
            operation.pins(worker.grammar_library)
            if not is_done(await self._store.pin_operation(operation.record, operation.claim, worker.grammar_library)):
                raise Taken
