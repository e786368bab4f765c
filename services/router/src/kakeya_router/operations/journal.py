"""The tokens that one operation adds to a history, on their way into Redis."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from kakeya_router.metrics import RouterMetrics
from kakeya_router.store.connection import is_done
from kakeya_router.store.session_record import Claim, SessionRecord
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_store import Taken
from kakeya_shared.errors.tree import StoreUnavailable

_log = structlog.get_logger()

# As often as a client's tokens are acknowledged to the worker; a write for each would cost Redis a sync of its disk.
_GROUP_TOKENS = 16
_GROUP_SECONDS = 0.05


class Journal:
    """Of one operation. An attempt whose answer was lost may be repeated: Redis knows what it has.

    Args:
        record: of the session; replaced when it gets another lane.
        claim: the operation's.
        max_tokens: the oldest beyond so many leave the journal.
        on_written: told the new length after each group.

    Attributes:
        length: history length up to which Redis has everything, as far as is known here.
        digest: of the history there, once it has written; None: not known.
        pending: generated tokens after it, all of which the client may have seen.
    """

    def __init__(
        self,
        store: OperationStore,
        record: SessionRecord,
        claim: Claim,
        max_tokens: int,
        on_written: Callable[[int], None],
        metrics: RouterMetrics,
    ) -> None:
        self.record = record
        self.length = record.journal_length
        self.digest: int | None = None
        self.pending: list[int] = []
        self._store = store
        self._claim = claim
        self._max_tokens = max_tokens
        self._on_written = on_written
        self._metrics = metrics
        self._any = asyncio.Event()
        self._group = asyncio.Event()
        self._error: BaseException | None = None

    async def write(self, token_ids: Sequence[int], start_tags: Sequence[str] = ()) -> None:
        """Adds tokens to the history; raises Taken or StoreUnavailable.

        Args:
            start_tags: of the place behind them, if the operation's answer begins there.
        """
        end = await self._store.extend_journal(
            self.record, self._claim, self.length, token_ids, self._max_tokens, start_tags
        )
        if not is_done(end.outcome):
            raise Taken
        self.length += len(token_ids)
        self.digest = int(end.digest, 16) if end.digest and end.length == self.length else None

    def add(self, token_id: int) -> None:
        """Takes a generated token, to be written with others.

        Raises:
            Taken, StoreUnavailable: those before cannot be written, and no more is to be shown to the client.
        """
        if self._error is not None:
            raise self._error
        self.pending.append(token_id)
        self._tell_pending()

    async def flush(self) -> None:
        """Writes what is pending, until nothing is; raises as `write`."""
        while self.pending:
            await self._write_group()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Writes what is added in the background while inside; what is pending on the way out stays so."""
        self._error = None
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        try:
            while True:
                await self._any.wait()
                began = time.monotonic()
                await self._group_or_pause()
                await self._write_group()
                self._any.clear()
                self._group.clear()
                self._tell_pending()  # what came meanwhile is of the next group
                self._metrics.journal_groups.inc()
                self._metrics.journal_lag_seconds.observe(time.monotonic() - began)
                self._on_written(self.length)
        except (Taken, StoreUnavailable) as error:
            self._error = error
        except Exception as error:
            _log.exception("the journal cannot be written", session_id=self.record.session_id)
            self._error = error

    async def _write_group(self) -> None:
        if group := tuple(self.pending):
            await self.write(group)
            del self.pending[: len(group)]

    def _tell_pending(self) -> None:
        if self.pending:
            self._any.set()
        if len(self.pending) >= _GROUP_TOKENS:
            self._group.set()

    async def _group_or_pause(self) -> None:
        try:
            async with asyncio.timeout(_GROUP_SECONDS):
                await self._group.wait()
        except TimeoutError:
            return
