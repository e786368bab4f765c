"""The processors that this process may use."""

import os
import sys


def num_processors() -> int:
    """On Linux those that affinity allows, elsewhere all."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
