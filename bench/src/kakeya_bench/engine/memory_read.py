"""How long it takes to read as many bytes as a decode step's weights have: the floor of a step, as a contestant."""

import ctypes
import mmap
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kakeya_bench.engine.contestants import READ, Entrant, Fields
from kakeya_bench.engine.plan import Case, Plan
from kakeya_bench.rivals.command import run_logged

_SOURCE = Path(__file__).with_suffix(".cpp")
_COMPILE = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-pthread")
_ALIGNMENT = 2 << 20  # of a huge page
_NUM_WARM = 2


def int8_weight_bytes(shape: Mapping[str, Any]) -> int:
    """What a decode step reads of int8 weights: all matrices once, an embedding only where it is the head, too."""
    hidden, heads = shape["hidden_size"], shape["head_dim"] * shape["num_attention_heads"]
    kv_heads = shape["head_dim"] * shape["num_key_value_heads"]
    layer = hidden * (2 * heads + 2 * kv_heads + 3 * shape["intermediate_size"])
    return int(shape["num_hidden_layers"] * layer + shape["vocab_size"] * hidden)


def entrant(num_bytes: int, plan: Plan, directory: Path) -> Entrant:
    """Compiles its reading loop into the directory. Raises CommandFailed.

    Args:
        num_bytes: of the weights.
    """
    library = directory / "memory_read.so"
    run_logged([os.environ.get("CXX", "c++"), *_COMPILE, _SOURCE, "-o", library], directory / "memory_read.log")
    loading = {"library": str(library), "num_bytes": num_bytes, "num_threads": plan.num_threads}
    return Entrant(READ, "memory_read", loading)


class MemoryRead:
    """Random bytes in memory, in huge pages where the system gives them."""

    def load(self, library: str, num_bytes: int, num_threads: int) -> Fields:
        """See `Contestant`."""
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

    def measure(self, case: Case, num_times: int) -> list[float]:
        """Seconds of each pass over all bytes."""
        num_passes = _NUM_WARM + num_times
        seconds = (ctypes.c_double * num_passes)()
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._read(ctypes.c_void_p(address), ctypes.c_size_t(self._num_bytes), self._num_threads, num_passes, seconds)
        return list(seconds)[_NUM_WARM:]


contestant = MemoryRead()
