"""Lets calls in until the process drains, and knows when the last one has ended."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_shared.errors import Draining


class CallGate:
    def __init__(self) -> None:
        self._num_inside = 0
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Holds a call. Raises Draining once the gate is closed."""
        if self._closed:
            raise Draining("this router is shutting down; another one serves the same sessions")
        self._num_inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._num_inside -= 1
            if not self._num_inside:
                self._empty.set()

    async def close(self, grace_seconds: float) -> None:
        """Lets nobody in any more and waits for those inside, at most `grace_seconds`."""
        self._closed = True
        try:
            await asyncio.wait_for(self._empty.wait(), grace_seconds)
        except TimeoutError:
            return  # gRPC cancels what is left
