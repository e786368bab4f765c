"""Snapshots that a bench has a worker write, as the router would."""

import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

import kakeya
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.processes import wait_until

TURN_TOKENS = 256
_WRITE_SECONDS = 120.0


class Store:
    """Of a runtime with one worker: a directory, and the worker's own calls. Use as a context manager."""

    def __init__(self, directory: Path, worker: str) -> None:
        self._directory = directory
        self._channel = grpc.insecure_channel(worker)
        self._stub: Any = VerifierServiceStub(self._channel)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def kv_bytes_per_token(self) -> int:
        return int(self._stub.GetSlab(pb.GetSlabRequest()).kv_bytes_per_token)

    def files(self, session: kakeya.Session) -> list[Path]:
        return sorted(self._directory.glob(f"*/{session.id}-*.safetensors"))

    def await_length(self, session: kakeya.Session) -> None:
        """Until the snapshot that follows a turn is there, and is the session's: the one before is removed then."""
        ending = f"-{session.history_length}.safetensors"
        wait_until(
            lambda: any(path.name.endswith(ending) for path in self.files(session)),
            f"a snapshot at {session.history_length} tokens",
            _WRITE_SECONDS,
        )

    @contextmanager
    def written(self, session: kakeya.Session, start: int = 0) -> Iterator[Path]:
        """One that the router knows nothing of, as it would have it written; removed at the end."""
        info = session.info()
        prefix = f"{session.id.partition('.')[0]}/{session.id}-{info.epoch}-{start}-{secrets.token_hex(4)}"
        request = pb.WriteSnapshotRequest(session_id=session.id, epoch=info.epoch, start=start, prefix=prefix)
        name = self._stub.WriteSnapshot(request, timeout=_WRITE_SECONDS).name
        yield self._directory / name
        self._stub.DeleteSnapshots(pb.DeleteSnapshotsRequest(names=[name]))


class Writer:
    """Writes snapshots of a session as often as the router would if it had turn after turn beside another's decode.

    A decode leaves half of a worker's time to prefills, so turns come as fast as half of what it prefills alone; each
    of them is written at its end, and each time that as many tokens came as are kept, all that is kept is. The first
    is such a whole one.

    Args:
        num_kept: tokens that the session keeps.

    Attributes:
        cycle_seconds: from one whole snapshot to the next.
        written_bytes: so far.
    """

    def __init__(self, store: Store, session: kakeya.Session, num_kept: int, prefill_tokens_per_second: float) -> None:
        self._store = store
        self._session = session
        self._length = session.info().history_length
        self._turns_a_cycle = math.ceil(num_kept / TURN_TOKENS)
        self._turn_seconds = 2 * TURN_TOKENS / prefill_tokens_per_second
        self._num_turns = 0
        self._elapsed_seconds = 0.0  # of all runs
        self.cycle_seconds = self._turns_a_cycle * self._turn_seconds
        self.written_bytes = 0

    def run(self, seconds: float) -> None:
        """Goes on for so long, and until what was begun is written."""
        started = time.perf_counter()
        while True:
            due_seconds = self._num_turns * self._turn_seconds - self._elapsed_seconds
            time.sleep(max(0.0, started + min(due_seconds, seconds) - time.perf_counter()))
            if time.perf_counter() - started >= seconds:
                break
            self._write()
        self._elapsed_seconds += time.perf_counter() - started

    def _write(self) -> None:
        is_whole = self._num_turns % self._turns_a_cycle == 0
        with self._store.written(self._session, 0 if is_whole else max(0, self._length - TURN_TOKENS)) as path:
            self.written_bytes += path.stat().st_size
        self._num_turns += 1
