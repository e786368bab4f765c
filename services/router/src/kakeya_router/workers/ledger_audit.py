"""The ledgers are counted anew: Redis may have evicted sessions that they count, or been set back."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_router.store.session_record import PoolName

# So many times as long as an audit took there is none after it: 64,000 sessions cost a router a fiftieth of its time.
_PAUSE = 50.0

_log = structlog.get_logger()

_Differences = Mapping[str, Mapping[str, tuple[int, int]]]


@dataclass(eq=False)
class LedgerAudit:
    """Corrects what the ledgers of workers and tenants say; the reaper has it done in each tenth pass.

    Sessions come and go while they are counted: only what was found twice in a row, with the same numbers, and is still
    so when it is corrected, is taken for an error. It costs a look at each session with a lane, some at a time: with so
    many that this takes long, passes are left out.
    """

    _store: WorkerStore
    _found: dict[PoolName, _Differences] = field(default_factory=dict, init=False)  # by pool, the last time
    _pause_until: dict[PoolName, float] = field(default_factory=dict, init=False)

    async def audit(self, pool: PoolName) -> None:
        """Raises StoreUnavailable."""
        if (began := time.monotonic()) >= self._pause_until.get(pool, 0.0):
            await self._audit(pool)
            self._pause_until[pool] = time.monotonic() + _PAUSE * (time.monotonic() - began)

    async def _audit(self, pool: PoolName) -> None:
        before, found = self._found.get(pool, {}), await self._store.ledger_errors(pool)
        self._found[pool] = found
        for key, differences in found.items():
            again = {name: each for name, each in differences.items() if before.get(key, {}).get(name) == each}
            corrected = await self._store.correct(key, [(name, *each) for name, each in again.items()]) if again else []
            for name in corrected:
                said, counted = again[name]
                _log.warning("a ledger was wrong and is corrected", key=key, count=name, said=said, counted=counted)
