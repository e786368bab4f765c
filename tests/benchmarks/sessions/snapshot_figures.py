"""What snapshots cost: how a worker is made to write them, what is made of that, and the bounds that it is held to."""

import math
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import grpc

import kakeya
from kakeya_bench.report.quantities import Bytes, Seconds, Share
from kakeya_bench.report.verdict import Verdict, at_least, at_most
from kakeya_bench.statistics import intervals
from kakeya_bench.statistics.distribution import median, percentile
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.processes import wait_until

MOST_BEYOND_RATIO, MOST_BEYOND_BYTES = 0.01, 64 * 1024
"""What a file may have beyond the KV in it: 12 bytes a token of position and id, a hidden vector, a header."""
LEAST_RESUME_RATIO = 20.0
MOST_SLOWDOWN = 0.05

Gaps = Sequence[Sequence[float]]
"""Stretches of seconds from one token to the next."""
TURN_TOKENS = 256
_WRITE_SECONDS = 120.0


def num_kept(start: int, length: int, sink: int, window: int) -> int:
    """Tokens from one history index on that a session keeps at a length: its sinks and its window."""
    return sum(index < sink or index >= length - window for index in range(start, length))


def size(path: Path, sink: int, window: int, kv_bytes_per_token: int) -> dict[str, Any]:
    """Of a file of the store, which holds what a session gained from one history length to another.

    Args:
        path: named PREFIX-START-RANDOM-LENGTH.safetensors.
    """
    _, start, _, length = path.stem.rsplit("-", 3)
    num_tokens, size_bytes = num_kept(int(start), int(length), sink, window), path.stat().st_size
    kv_bytes = num_tokens * kv_bytes_per_token
    return {
        "start": int(start),
        "length": int(length),
        "num_tokens": num_tokens,
        "kv_bytes": kv_bytes,
        "size_bytes": size_bytes,
        "is_kept": is_size_kept(kv_bytes, size_bytes),
    }


def is_size_kept(kv_bytes: int, size_bytes: int) -> bool:
    return 0 <= size_bytes - kv_bytes <= MOST_BEYOND_RATIO * kv_bytes + MOST_BEYOND_BYTES


def resumes(num_tokens: int, seconds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Of sessions of so many tokens, one number a round.

    Args:
        seconds: `prefill` of a new session's tokens, to its first answer's first token; `write` of the whole snapshot,
            by itself: sessions that are parked have theirs from the end of their last turn; `park` and `resume`, of the
            call, and of the next answer's first token.
    """
    returns = [park + resume for park, resume in zip(seconds["park"], seconds["resume"], strict=True)]
    with_write = [write + each for write, each in zip(seconds["write"], returns, strict=True)]
    return {
        "num_tokens": num_tokens,
        **{name: [*map(Seconds, each)] for name, each in seconds.items()},
        "ratio": median(seconds["prefill"]) / median(returns),
        "ratio_with_write": median(seconds["prefill"]) / median(with_write),
    }


def decodes(alone: Gaps, beside: Gaps, written_bytes: int) -> dict[str, Any]:
    """Of a session, alone and while another one's snapshots are written; so many bytes in all of these stretches."""
    slowdowns = [mean(one) / mean(other) - 1 for one, other in zip(beside, alone, strict=True)]
    interval = intervals.of_mean(slowdowns)
    return {
        "alone_ms": _milliseconds(alone),
        "beside_ms": _milliseconds(beside),
        # Of all tokens, so that a stall counts for what it takes.
        "slowdown": Share(mean(chain(*beside)) / mean(chain(*alone)) - 1),
        "slowdowns": [*map(Share, slowdowns)],
        "interval_95": [Share(interval.low), Share(interval.high)],
        "written_bytes_per_second": Bytes(written_bytes / sum(map(sum, beside))),
    }


def _milliseconds(stretches: Gaps) -> dict[str, float]:
    gaps = list(chain(*stretches))
    named = {"mean": mean(gaps), "p50": median(gaps), "p95": percentile(gaps, 95), "max": max(gaps)}
    return {name: round(value * 1e3, 2) for name, value in named.items()}


def verdicts(
    sizes: Sequence[Mapping[str, Any]], resumed: Mapping[str, Any], decoded: Mapping[str, Any]
) -> list[Verdict]:
    num_broken = sum(not each["is_kept"] for each in sizes)
    return [
        at_most("sizes", "files with more or less than their KV and what belongs to it:", num_broken, 0),
        at_least("resume", "times as fast as the prefill:", resumed["ratio"], LEAST_RESUME_RATIO),
        at_most("decode", "slower by", decoded["slowdown"], Share(MOST_SLOWDOWN)),
    ]


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
