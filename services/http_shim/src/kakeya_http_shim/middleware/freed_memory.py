"""Memory that large requests leave free goes back to the system."""

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

_AFTER_SECONDS = 1.0
"""What a request leaves is free a moment after its end, and of many that end together once is enough."""

_malloc_trim: Final[Callable[[int], int]] = getattr(ctypes.CDLL(None), "malloc_trim", int)  # of glibc; others need none


class FreedMemory:
    """Gives it back.

    By itself glibc keeps it, in an arena for each thread: some large prompts, tokenized on several, are hundreds of MiB
    that nobody uses (malloc_trim(3)).
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def give_back_soon(self) -> None:
        """In a second, together with what else becomes free by then."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_AFTER_SECONDS, self._give_back)

    def _give_back(self) -> None:
        self._timer = None
        asyncio.get_running_loop().run_in_executor(None, _malloc_trim, 0)  # some 10 ms, in which others go on
