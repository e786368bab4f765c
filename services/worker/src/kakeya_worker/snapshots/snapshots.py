"""Snapshots between the engine and the store: copied, written and read by threads of their own."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import structlog

from kakeya_shared.errors.tree import InvalidField, SnapshotRefused, SnapshotStoreUnavailable
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import OpenLane
from kakeya_worker.engine.seams.verifier import Memory
from kakeya_worker.engine.snapshots.made_memory import made_memory
from kakeya_worker.engine.snapshots.snapshot import Snapshot, TakenSnapshot, memory_for
from kakeya_worker.host.daemon_threads import DaemonThreads
from kakeya_worker.metrics import WorkerMetrics, no_metrics
from kakeya_worker.snapshots import snapshot_file
from kakeya_worker.snapshots.snapshot_store import SnapshotMissing, SnapshotStore, SnapshotStoreError

# What routers make of pools and session ids; no name leaves the store's root.
_PREFIX = re.compile(r"[a-z0-9][a-z0-9-]{0,62}/[A-Za-z0-9_][A-Za-z0-9._-]{0,159}")
_NAME = re.compile(rf"{_PREFIX.pattern}\.safetensors")
_SUFFIX = ".safetensors"
_MAX_NAMES = 1024
_NUM_THREADS = 2
# Kept by each thread that reads, at most: what fits costs no new pages, which take longer than it does.
_READING_BYTES = 8 << 20
# Nobody waits for what is written as he does for the next token, or for a session to be read.
_WRITING_NICENESS = 10

_T = TypeVar("_T")

_log = structlog.get_logger()


@dataclass(frozen=True)
class WrittenSnapshot:
    """A snapshot that is in the store, and was read back."""

    name: str
    length: int
    size_bytes: int
    history_digest: int | None


class Snapshots:
    """Writes and restores sessions.

    Args:
        store: None: there is none, and every call fails with SnapshotStoreUnavailable.
    """

    def __init__(self, engine: Engine, store: SnapshotStore | None, metrics: WorkerMetrics | None = None) -> None:
        self._engine = engine
        self._metrics = metrics or no_metrics()
        self._store = store
        self._reading = DaemonThreads(_NUM_THREADS, "snapshot-reader")
        num_bytes = min(_READING_BYTES, engine.lanes.totals().lane_bytes) if store else 0
        self._memories = [made_memory(num_bytes) for _ in range(_NUM_THREADS)]
        # By themselves, since a session waits for them: they never wait for the store.
        self._copying = DaemonThreads(_NUM_THREADS, "lane-copier")
        self._writing = DaemonThreads(_NUM_THREADS, "snapshot-writer", niceness=_WRITING_NICENESS)

    def close(self, timeout_seconds: float) -> None:
        """Waits for what is being written. What a store that hangs has of it is swept later."""
        ends_at = time.monotonic() + timeout_seconds
        ended = [
            threads.close(max(0.0, ends_at - time.monotonic()))
            for threads in (self._copying, self._writing, self._reading)
        ]
        if not all(ended):
            _log.warning("the snapshot store hangs; what it has not done is left")

    async def write(self, session_id: str, epoch: int, start: int, prefix: str) -> WrittenSnapshot:
        """Copies what a session keeps since `start`, writes it as PREFIX-LENGTH.safetensors and reads it back.

        Raises:
            SessionNotFound, StaleEpoch, InvalidField
            SnapshotStoreUnavailable: it is not in the store.
        """
        if not _PREFIX.fullmatch(prefix):
            raise _invalid("prefix", f"must match {_PREFIX.pattern}")
        store = self._usable_store()
        lanes = self._engine.lanes
        lane = lanes.find(session_id, epoch).lane
        with self._metrics.writing():
            memory = await _done(self._writing, lambda: memory_for(lane, lanes.kv_bytes_per_token, start))
            taken = await _done(self._copying, lambda: self._engine.take_snapshot(session_id, epoch, start, memory))
            written = await _done(self._writing, lambda: _written(store, prefix, taken))
        self._metrics.written_bytes.inc(written.size_bytes)
        return written

    async def restore(
        self, session_id: str, epoch: int, names: Sequence[str], tenant: str, *, inexact: bool, speculation: str = ""
    ) -> OpenLane:
        """Opens a session with what snapshots hold: a whole one, and all since.

        Args:
            inexact: those of other fingerprints of the model will do.
            speculation: see `SessionOptions`.

        Raises:
            SnapshotRefused: one is damaged or gone, or they do not belong together, or not here.
            SnapshotStoreUnavailable: one cannot be read.
            InvalidField, NoCapacity, StaleEpoch, Draining
        """
        _check_names(names)
        store = self._usable_store()

        def restored() -> OpenLane:
            with self._reading_memory() as memory, ExitStack() as files:
                snapshots = [files.enter_context(_opened(store, name, memory)) for name in names]
                return self._engine.restore(
                    session_id, epoch, snapshots, tenant, inexact=inexact, speculation=speculation
                )

        with self._metrics.restoring():
            return await _done(self._reading, restored)

    async def delete(self, names: Sequence[str]) -> None:
        """Removes snapshots; raises InvalidField or SnapshotStoreUnavailable."""
        _check_names(names)
        store = self._usable_store()
        await _done(self._writing, lambda: store.delete(names))

    async def old_files(self, pool: str, seconds: float) -> list[str]:
        """Names of a pool's files that were not written to for so long; raises SnapshotStoreUnavailable."""
        store = self._usable_store()
        files = await _done(self._writing, lambda: store.files(f"{pool}/"))
        return [file.name for file in files if file.age_seconds >= seconds]

    async def remove(self, names: Sequence[str]) -> None:
        """As `delete`, of files that the store itself has named."""
        store = self._usable_store()
        await _done(self._writing, lambda: store.delete(names))

    @contextmanager
    def _reading_memory(self) -> Iterator[Memory]:
        """For one of the threads that read: there is one for each."""
        memory = self._memories.pop()
        try:
            yield memory
        finally:
            self._memories.append(memory)

    def _usable_store(self) -> SnapshotStore:
        if self._store is None:
            raise SnapshotStoreUnavailable("this worker has no snapshot store (--snapshots)")
        return self._store


async def _done(threads: DaemonThreads, work: Callable[[], _T]) -> _T:
    try:
        return await asyncio.wrap_future(threads.submit(work))
    except SnapshotStoreError as error:
        raise SnapshotStoreUnavailable(f"the snapshot store does not work: {error}") from error


def _written(store: SnapshotStore, prefix: str, snapshot: TakenSnapshot) -> WrittenSnapshot:
    pieces = snapshot_file.pieces(snapshot)
    name = f"{prefix}-{snapshot.length}{_SUFFIX}"
    store.write(name, *pieces)
    with closing(store.open(name)) as file:
        if not snapshot_file.is_same(file, pieces):
            raise SnapshotStoreError(f"{name}: what was read back is not what was written")
    return WrittenSnapshot(name, snapshot.length, sum(map(len, pieces)), snapshot.history_digest)


@contextmanager
def _opened(store: SnapshotStore, name: str, memory: Memory) -> Iterator[Snapshot]:
    try:
        opened = store.open(name)
    except SnapshotMissing as error:
        raise SnapshotRefused(str(error)) from error
    with closing(opened) as file:
        yield snapshot_file.opened(file, name, memory)


def _check_names(names: Sequence[str]) -> None:
    if not 0 < len(names) <= _MAX_NAMES:
        raise _invalid("names", f"must be 1 to {_MAX_NAMES}")
    if not all(map(_NAME.fullmatch, names)):
        raise _invalid("names", f"each must match {_NAME.pattern}")


def _invalid(field: str, why: str) -> InvalidField:
    return InvalidField(f"{field}: {why}", metadata={"field": field})
