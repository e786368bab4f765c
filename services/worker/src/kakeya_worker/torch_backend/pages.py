"""Pages of memory, made before they are written to."""

import ctypes
import mmap
import sys

from torch import Tensor

_MADV_POPULATE_WRITE = 23  # linux/mman.h, since Linux 5.14


def populate(tensor: Tensor) -> bool:
    """Has the pages of a contiguous tensor made, whatever is in it; False where the system does not know how.

    No lock is held meanwhile, Python's neither.
    """
    if sys.platform != "linux":
        return False
    start = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    end = tensor.data_ptr() + tensor.nbytes
    madvise = ctypes.CDLL(None).madvise
    return bool(madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_POPULATE_WRITE) == 0)
