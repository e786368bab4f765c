"""Tensors in a file that is open, read without trusting it."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.seams.verifier import Memory
from kakeya_worker.snapshots.snapshot_store import OpenFile, SnapshotStoreError

TYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype("<u2"),
    "F32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
}


@dataclass(frozen=True)
class FileTensor:
    """Where a file has one, and of which type and shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @classmethod
    def of(cls, data: range, dtype: str, shape: list[int], data_offsets: list[int]) -> "FileTensor":
        """By what the header says of one in the file's data; raises KeyError, TypeError or ValueError."""
        start, end = data_offsets
        if not all(type(number) is int and number >= 0 for number in (start, end, *shape)):
            raise ValueError(f"a shape of {shape}, from {start} to {end}")
        found = cls(TYPES[dtype], tuple(shape), data.start + start)
        if found.num_bytes != end - start or end > len(data):
            raise ValueError(f"{dtype} {shape} does not take {start} to {end} of {len(data)} bytes")
        return found

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def layers(self, start: int, end: int) -> "FileTensor":
        """A part of one whose first axis is that."""
        part = (end - start, *self.shape[1:])
        return FileTensor(self.dtype, part, self.start + start * math.prod(self.shape[1:]) * self.dtype.itemsize)

    def read(self, file: OpenFile, memory: Memory) -> NDArray[Any]:
        """Into the first of the memory; raises ValueError or SnapshotStoreError."""
        memory = memory[: self.num_bytes]
        _fill(memory.data, file, self.start)
        return memory.view(self.dtype).reshape(self.shape)


def size(file: OpenFile) -> int:
    """In bytes; raises SnapshotStoreError."""
    with _translated():
        return file.seek(0, os.SEEK_END)


def read(file: OpenFile, start: int, num_bytes: int) -> bytes:
    """Raises ValueError or SnapshotStoreError."""
    memory = bytearray(num_bytes)
    _fill(memoryview(memory), file, start)
    return bytes(memory)


def _fill(memory: memoryview, file: OpenFile, start: int) -> None:
    """With what a file has from a place on; raises ValueError or SnapshotStoreError."""
    num_read = 0
    with _translated():
        file.seek(start)
        while num_read < len(memory):
            more = file.readinto(memory[num_read:])
            if not more:
                raise ValueError("it is cut short")
            num_read += more


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SnapshotStoreError(f"it cannot be read: {error}") from error
