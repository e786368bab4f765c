"""The resident memory of a server's processes."""

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
    pid = pid or _listener(url)
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        num_bytes = int(process.memory_info().rss)
        children = process.children(recursive=True)
    except psutil.Error:  # it has gone, or is another user's
        return None
    return num_bytes + sum(_rss_bytes(child) for child in children)


def _rss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it ended meanwhile
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
