"""Where a stack keeps its data and logs, and the lock that makes it the only one there."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kakeya_local.errors import StackError

_TAIL_BYTES = 8192
_MAX_SOCKET_PATH = 92  # sun_path holds 104 bytes on macOS, 108 on Linux; supervisord adds a process id


@dataclass(frozen=True)
class DataDirectory:
    """An open data directory.

    Attributes:
        path: holds `redis/`, `snapshots/` and `logs/`.
        runtime: for sockets and generated configuration; short, private, gone after the run.
        lock_fd: holding it open holds the lock; a child that inherits it prolongs the lock.
    """

    path: Path
    runtime: Path
    lock_fd: int

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def redis(self) -> Path:
        return self.path / "redis"

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def last_lines(self, process: str) -> list[str]:
        """The end of its log, a few KB; empty where there is none yet."""
        try:
            with self.log(process).open("rb") as log:
                log.seek(-min(_TAIL_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
                return log.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []


def default_path() -> Path:
    """Where `kakeya up` keeps its data unless told otherwise (XDG state directory). Raises StackError."""
    state_home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if state_home.startswith("~"):
        raise StackError("there is no home directory: set HOME or XDG_STATE_HOME, or pass --data-dir or --ephemeral")
    return Path(state_home) / "kakeya"


def usual_path() -> Path:
    """As `default_path`, unless $KAKEYA_UP_DATA_DIR names another one."""
    return Path(os.environ.get("KAKEYA_UP_DATA_DIR") or default_path()).expanduser()


@contextmanager
def open_directory(path: Path | None, *, ephemeral: bool) -> Iterator[DataDirectory]:
    """Locks a data directory (None: the default one), or makes a temporary one that is removed at the end.

    Raises:
        StackError: another stack runs in it, or it cannot be made.
    """
    with _runtime_directory() as runtime:
        path = runtime / "data" if ephemeral else Path(os.path.expanduser(path or default_path()))
        with _refused(f"cannot use the data directory {path}"):
            path = path.absolute()
            lock_fd = _lock(path)
        try:
            directory = DataDirectory(path, runtime, lock_fd)
            with _refused(f"cannot use the data directory {path}"):
                directory.redis.mkdir(exist_ok=True)
                _begin_logs(directory.logs)
            yield directory
        finally:
            os.close(lock_fd)


@contextmanager
def _runtime_directory() -> Iterator[Path]:
    with _refused("there is no place for temporary files (TMPDIR)"):
        runtime = tempfile.mkdtemp(prefix="kakeya-")
        if len(os.fsencode(runtime)) + len("/supervisor.sock") > _MAX_SOCKET_PATH:
            os.rmdir(runtime)
            runtime = tempfile.mkdtemp(prefix="kakeya-", dir="/tmp")
    try:
        yield Path(runtime)
    finally:
        shutil.rmtree(runtime)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Makes an OSError a StackError that says what cannot be done, and why."""
    try:
        yield
    except OSError as error:
        raise StackError(f"{what}: {error.strerror or error}") from error


def _lock(path: Path) -> int:
    path.mkdir(parents=True, exist_ok=True)
    lock_fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock_fd, 32).decode(errors="replace").strip()
        os.close(lock_fd)
        raise StackError(f"another `kakeya up` (pid {holder}) runs in {path}; choose another --data-dir") from None
    try:
        os.ftruncate(lock_fd, 0)
        os.write(lock_fd, f"{os.getpid()}\n".encode())
    except OSError:
        os.close(lock_fd)
        raise
    return lock_fd


def _begin_logs(logs: Path) -> None:
    """Each run begins its logs anew, so that the last line of one is of this run; the former run's are kept."""
    logs.mkdir(exist_ok=True)
    for log in logs.glob("*.log"):
        log.replace(log.with_suffix(".log.previous"))
