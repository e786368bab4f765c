"""How long it takes to read as many bytes as a decode step's weights have; a contestant of `make bench-engine`."""

import ctypes
import mmap
import os
import random
import time
from pathlib import Path

from tests.benchmarks.engine_case import Case
from tests.benchmarks.engine_contestant import Fields, serve
from tests.benchmarks.logged_command import run_logged

_SOURCE = Path(__file__).with_suffix(".cpp")
_COMPILE = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-pthread")
_ALIGNMENT = 2 << 20  # of a huge page
_NUM_WARM = 2


def compiled(directory: Path) -> Path:
    """The library of engine_memory_read.cpp. Raises CommandFailed."""
    library = directory / "memory_read.so"
    run_logged([os.environ.get("CXX", "c++"), *_COMPILE, _SOURCE, "-o", library], directory / "memory_read.log")
    return library


class MemoryRead:
    """Random bytes in memory, in huge pages where the system gives them."""

    def load(self, library: str, num_bytes: int, num_threads: int) -> Fields:
        """See `Contestant`.

        Args:
            library: compiled from engine_memory_read.cpp.
        """
        began = time.perf_counter()
        self._read = ctypes.CDLL(library).read_memory
        self._read.restype = ctypes.c_uint64
        self._num_bytes, self._num_threads = num_bytes, num_threads
        self._memory = mmap.mmap(
            -1, -(-num_bytes // _ALIGNMENT) * _ALIGNMENT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        self._memory.madvise(mmap.MADV_HUGEPAGE)
        block = random.Random(0).randbytes(_ALIGNMENT)
        for start in range(0, len(self._memory), _ALIGNMENT):
            self._memory[start : start + _ALIGNMENT] = block
        return {"seconds": time.perf_counter() - began, "num_bytes": num_bytes}

    def open(self, window: int, cases: list[Fields]) -> Fields:
        """See `Contestant`; what it reads is the same in all cases."""
        return {}

    def measure(self, case: Case, num_times: int) -> list[float]:
        """Seconds of each pass over all bytes."""
        num_passes = _NUM_WARM + num_times
        seconds = (ctypes.c_double * num_passes)()
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._read(ctypes.c_void_p(address), ctypes.c_size_t(self._num_bytes), self._num_threads, num_passes, seconds)
        return list(seconds)[_NUM_WARM:]


if __name__ == "__main__":
    serve(MemoryRead())
