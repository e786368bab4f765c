"""Memory whose pages are there: to have them made can take longer than what is then copied into them."""

import mmap

import numpy as np

from kakeya_worker.engine.verifier import Memory


def made_memory(num_bytes: int) -> Memory:
    """New memory, [bytes]. Much of it has large pages where the system allows that, as numpy asks for them."""
    memory = np.empty(num_bytes, np.uint8)
    memory[:: mmap.PAGESIZE] = 0
    return memory
