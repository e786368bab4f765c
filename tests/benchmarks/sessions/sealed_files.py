"""What it costs to encrypt snapshots: files of a directory, written and read in turn as they are and encrypted.

A file of the size of one turn's snapshot and one of a whole lane, of Qwen3-0.6B's shape. Both are in the system's file
cache, so a disk would make the ratio smaller. Nothing is judged.
"""

import os
import secrets
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from kakeya_bench.report.quantities import Bytes
from kakeya_bench.statistics import intervals
from kakeya_shared.settings.service import setting
from kakeya_worker.snapshot_stores.encrypted import EncryptedStore
from kakeya_worker.snapshot_stores.file import FileSnapshotStore
from kakeya_worker.snapshot_stores.key_file import Key
from kakeya_worker.snapshots.snapshot_store import SnapshotStore
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.pairs import in_turn

KV_BYTES_PER_TOKEN = 28 * 8 * 128 * 2 * 2  # layers, heads, dimensions, K and V, bfloat16
TOKENS = {"a turn": 60, "a lane": 1_000}
_NAME = "pool/pool.session-0-{}.safetensors"
_PART_BYTES = 4 << 20
_WAYS = ("plain", "encrypted")


class SealedSettings(BenchSettings):
    pairs: int = setting(10, "pairs of measurements", reason="seconds", metavar="N", ge=2)


def made(directory: Path) -> list[SnapshotStore]:
    plain = FileSnapshotStore(str(directory))
    return [plain, EncryptedStore(plain, [Key(secrets.token_bytes(32))])]


def timed(store: SnapshotStore, pieces: Sequence[memoryview]) -> tuple[float, float]:
    """Seconds of writing a file and of reading it back."""
    name, began = _NAME.format(secrets.token_hex(4)), time.perf_counter()
    store.write(name, *pieces)
    written, memory = time.perf_counter(), bytearray(_PART_BYTES)
    with closing(store.open(name)) as file:
        left = file.seek(0, os.SEEK_END)
        file.seek(0)
        while left:
            left -= file.readinto(memoryview(memory)[:left]) or 0
    read = time.perf_counter()
    store.delete([name])
    return written - began, read - written


def compared(stores: Sequence[SnapshotStore], num_bytes: int, num_pairs: int) -> dict[str, dict[str, Any]]:
    """By what is done: MB a second of both ways, and the median of the ratio of their times with its interval."""
    content = memoryview(secrets.token_bytes(num_bytes))
    pieces = [content[:100], content[100 : num_bytes // 2], content[num_bytes // 2 :]]
    for store in stores:
        timed(store, pieces)
    pairs = []
    for order in in_turn(stores, num_pairs):
        took = {id(store): timed(store, pieces) for store in order}
        pairs.append([took[id(store)] for store in stores])
    seconds = np.array(pairs)  # [pairs, ways, write and read]
    found = {}
    for index, done in enumerate(("write", "read")):
        of_both = seconds[:, :, index]
        ratio = intervals.of_median((of_both[:, 1] / of_both[:, 0]).tolist())
        rates = num_bytes / np.median(of_both, axis=0) / 1e6
        found[done] = {
            "bytes": Bytes(num_bytes),
            "mb_a_second": dict(zip(_WAYS, rates.tolist(), strict=True)),
            "ratio": ratio.estimate,
            "interval_95": [ratio.low, ratio.high],
        }
    return found


@bench.command(SealedSettings)
def measure(settings: SealedSettings, stage: Stage) -> Found:
    stores = made(stage.directory)
    step, found = stage.steps(len(TOKENS)), dict[str, Any]()
    for name, num_tokens in TOKENS.items():
        for done, each in compared(stores, num_tokens * KV_BYTES_PER_TOKEN, settings.pairs).items():
            found[f"{done} {name}"] = each
        step("files")
    return found, []
