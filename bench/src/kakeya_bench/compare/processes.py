"""What a server's processes take on this host: resident memory, and processor time."""

import sys
import time
from urllib.parse import urlsplit

import psutil

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_PORTS = {"http": 80, "https": 443}


def rss_bytes(url: str, pid: int | None) -> int | None:
    """Resident bytes of a server's process and of those that it has started, together; None where they are not known.

    What these share is counted for each of them.

    Args:
        url: where the server answers.
        pid: of its process; None for the one on this host that listens at the URL's port.
    """
    sizes = [_rss_bytes(each) for each in ids(url, pid)]
    return sum(sizes) if sizes and sizes[0] else None


def ids(url: str, pid: int | None) -> list[int]:
    """Of the same processes, the server's own first; none where they are not known."""
    pid = pid or _listener(url)
    if pid is None:
        return []
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return []


def cpu_seconds(pids: list[int]) -> float | None:
    """The processor time that processes have taken up to now, together.

    None where it is not known: of no process, of one that has gone, and outside Linux.
    """
    if not pids or sys.platform != "linux":
        return None
    try:
        return sum(map(cpu_seconds_of, pids))
    except OSError:
        return None


def cpu_seconds_of(pid: int) -> float:
    """The processor time of one process (Linux): what its threads' schedstat files say, with threads that have ended.

    It is finer than the ticks of /proc/PID/stat. Raises OSError: it has gone.
    """
    return time.clock_gettime((~pid << 3) | 2)  # its CLOCK_PROCESS_CPUTIME_ID, as clock_getcpuclockid(3) makes it


def _rss_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:  # it ended meanwhile, or is another user's
        return 0


def _listener(url: str) -> int | None:
    """The process that listens there; of several that share the port, as a server's workers do, the oldest."""
    parts = urlsplit(url)
    if parts.hostname not in _LOOPBACK:
        return None
    port = parts.port or _PORTS[parts.scheme]
    try:
        return min((pid for pid, listens_at in _listening() if listens_at == port), default=None)
    except psutil.AccessDenied:  # macOS shows all connections to root alone
        return min((process.pid for process in psutil.process_iter() if _listens(process, port)), default=None)


def _listening() -> list[tuple[int, int]]:
    """Processes and ports."""
    return [
        (connection.pid, connection.laddr.port)
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid
    ]


def _listens(process: psutil.Process, port: int) -> bool:
    try:
        connections = process.net_connections(kind="tcp")
    except psutil.Error:  # another user's
        return False
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)
