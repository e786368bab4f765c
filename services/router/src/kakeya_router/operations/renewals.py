"""The leases of operations, renewed together."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

import structlog

from kakeya_router.operations.operation import Operation, Running
from kakeya_router.store.connection import is_done
from kakeya_router.store.outcomes import RenewOperation
from kakeya_router.store.session_record import PoolName
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.endured_loop import endured_loop

RENEWED_EACH = 0.3
"""Of the length of an operation's lease: one lost renewal does no harm."""

# What others ask of Redis meanwhile does not wait for more than these.
_BATCH = 64

_log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class Renewals:
    """Renews the leases of all operations that run, many in one round trip: a call has neither a timer nor a task of
    its own for it. The first renewal comes after a part of `pause_seconds`.

    Args:
        on_renewed: told of each that is.
        lease_seconds: of an operation.
    """

    _store: OperationStore
    _running: Running
    _on_renewed: Callable[[Operation], None]
    _: KW_ONLY
    lease_seconds: float

    async def run(self) -> None:
        """Renews them, until it is cancelled: when none runs any more."""
        await endured_loop(
            "renewing operations", self._renew_all, interval_seconds=self._pause_seconds, put_off_by=(TimeoutError,)
        )

    @property
    def _pause_seconds(self) -> float:
        return RENEWED_EACH * self.lease_seconds

    async def _renew_all(self) -> None:
        by_pool: defaultdict[PoolName, list[Operation]] = defaultdict(list)
        for operation in self._running:
            by_pool[operation.record.pool].append(operation)
        # A connection may hang while Redis is well: the next renewals, over another one, are still in time.
        async with asyncio.timeout(self._pause_seconds):
            await asyncio.gather(*map(self._renew, by_pool.values()))

    async def _renew(self, operations: Sequence[Operation]) -> None:
        """Those of one pool. While Redis is away nobody can take a session over."""
        with suppress(StoreUnavailable):
            for start in range(0, len(operations), _BATCH):
                some = operations[start : start + _BATCH]
                outcomes = await self._store.renew_operations([(each.record, each.claim) for each in some])
                for operation, outcome in zip(some, outcomes, strict=True):
                    if operation in self._running:
                        self._hear(operation, outcome)

    def _hear(self, operation: Operation, outcome: RenewOperation | Exception) -> None:
        if isinstance(outcome, Exception):
            if not isinstance(outcome, StoreUnavailable):
                _log.error("an operation is not renewed", session_id=operation.record.session_id, exc_info=outcome)
        elif is_done(outcome):
            self._on_renewed(operation)
        else:
            operation.call.cancel()
