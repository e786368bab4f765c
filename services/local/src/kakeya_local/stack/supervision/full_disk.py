"""A disk that takes no more: Redis, which syncs each write, ends at the first that fails; the others go on without it.

The router refuses calls with the reason meanwhile (`--redis-directory`). Redis then has again all that it acknowledged:
of its file it drops the part of a write at the end.
"""

import re
import time
from collections.abc import Callable

from kakeya_local.stack.data_directory import DataDirectory
from kakeya_local.stack.program import REDIS
from kakeya_local.stack.supervision.supervisor import ProcessStatus, Supervisor
from kakeya_shared.process.disk_room import shortage

_ENDED = ("BACKOFF", "EXITED", "FATAL")
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
# Routers write something each second.
_SETTLED_SECONDS = 5.0
_GREETING = "Redis is starting"
# What Redis says of a disk that has room by its own account: of a quota, or of one that has become read-only.
_WRITE_ERROR = re.compile(
    r" # (.*(No space left on device|Disk quota exceeded|Read-only file system|Input/output error).*)"
)


class FullDisk:
    """Keeps the stack up while Redis cannot write, and has Redis started again once it can.

    Args:
        report: told once that it began, and once that it is over.

    Attributes:
        reason: why Redis is away; "" as long as it is not, or for another reason.
    """

    def __init__(self, directory: DataDirectory, supervisor: Supervisor, report: Callable[[str], None]) -> None:
        self.reason = ""
        self._directory = directory
        self._supervisor = supervisor
        self._report = report
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._next_start = 0.0
        self._running_since = 0.0
        self._has_run = False

    async def keeps_away(self, redis: ProcessStatus) -> bool:
        """Whether Redis, as it is now, is or was away for this reason; then nobody else need judge it."""
        was_away, full = bool(self.reason), shortage(self._directory.redis)
        if redis.state != "RUNNING":
            self._running_since = time.monotonic()
        elif not full or time.monotonic() - self._running_since > _SETTLED_SECONDS:
            self._end()
        # Between two looks supervisord may have started it again.
        has_ended = redis.state in _ENDED or (redis.state == "STARTING" and self._has_run)
        self._has_run = self._has_run or redis.state == "RUNNING"
        if has_ended and (reason := full or self._write_error()):
            self._begin(reason)
        if full:
            self._next_start = 0.0
        if self.reason and redis.state == "FATAL" and not full:
            return await self._start()
        return was_away or bool(self.reason)

    def _begin(self, reason: str) -> None:
        if not self.reason:
            self._report(f"redis ended: {reason}; calls are refused until there is room, then all sessions go on")
        self.reason = reason

    def _end(self) -> None:
        if self.reason:
            self._report("redis runs again; all sessions go on")
        self.reason, self._pause_seconds, self._next_start = "", _FIRST_PAUSE_SECONDS, 0.0

    async def _start(self) -> bool:
        """Has it started again, less often each time; False where room did not help and Redis names no such reason."""
        if self._next_start and not self._write_error():
            return False
        if time.monotonic() >= self._next_start:
            self._next_start = time.monotonic() + self._pause_seconds
            self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
            await self._supervisor.start(REDIS)
        return True

    def _write_error(self) -> str:
        """What Redis said of its disk since it was started last; a log on a full disk may lack it."""
        lines = self._directory.last_lines(REDIS)
        greetings = [number for number, line in enumerate(lines) if _GREETING in line]
        said = lines[greetings[-1] :] if greetings else lines
        return next((error[1] for line in reversed(said) if (error := _WRITE_ERROR.search(line))), "")
