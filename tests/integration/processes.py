"""A runtime of real processes: a Redis, routers, workers, HTTP shims, all on loopback and free ports."""

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import ClassVar

import grpc

from kakeya import AsyncSession, SessionInfo
from kakeya_shared.health_command import check
from kakeya_shared.settings.addresses import HostPort
from kakeya_stubs.admin.v1.admin_pb2 import ListWorkersRequest, WorkerStatus
from kakeya_stubs.admin.v1.admin_pb2_grpc import AdminServiceStub
from tests.integration.forked_service import ForkedService
from tests.integration.lapses import Lapses
from tests.ports import free_port
from tests.redis_server import RedisServer, redis_server

START_SECONDS = 120.0
"""What no machine takes, however busy: until a process serves."""
LONG_SECONDS = 60.0
"""Likewise, for what takes moments."""
PATIENT = {
    f"KAKEYA_ROUTER_{name}_SECONDS": f"{LONG_SECONDS:g}"
    for name in ("WORKER_LEASE", "WORKER_SILENCE", "OPERATION_LEASE", "REDIS_TIMEOUT")
} | {"KAKEYA_ROUTER_HEARTBEAT_INTERVAL_SECONDS": "1"}
"""Of routers: no lease lapses because a machine is busy, and no slow Redis is taken for one that is away. Workers say
soon what has changed.
"""
SINK, WINDOW = 4, 64
NUM_SLOTS = SINK + WINDOW + 31 + 15  # slack for a step of 32 tokens, and for whole blocks of 16
ADMIN_KEY_VARIABLE = "KAKEYA_ROUTER_ADMIN_KEY"
JOIN_TOKEN_VARIABLE = "KAKEYA_ROUTER_JOIN_TOKEN"


def asking_for_keys() -> dict[str, str]:
    """The environment of a runtime whose routers ask for keys, with an administrator's key and a join token."""
    join_token = f"kakeya_join_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"
    return {
        "KAKEYA_ROUTER_AUTH": "keys",
        ADMIN_KEY_VARIABLE: f"kakeya_key_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}",
        JOIN_TOKEN_VARIABLE: join_token,
        "KAKEYA_WORKER_TOKEN": join_token,
    }


def bearer(secret: str) -> tuple[tuple[str, str], ...]:
    """The metadata with which a key or token is sent."""
    return (("authorization", f"Bearer {secret}"),)


@dataclass
class Process:
    """One service; its log is a file, so that a test can search it."""

    process: "subprocess.Popen[bytes] | ForkedService"
    address: str
    log: Path

    @property
    def metrics(self) -> str:
        """Where it serves its metrics, as its log says."""
        return self._said("metrics")

    @property
    def worker_id(self) -> str:
        """Of a worker that is not told another name: of its host and port."""
        return f"{socket.gethostname()}-{HostPort.parse(self.address).port}"

    @property
    def served_at(self) -> str:
        """Of a worker, as gRPC has it: of one that listens on no port the socket of its own."""
        return self.address or self._said("address")

    @property
    def incarnation(self) -> str:
        """Of a worker, by which it has joined."""
        return self._said("incarnation")

    def _said(self, field: str) -> str:
        events = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return next(str(event[field]) for event in reversed(events) if field in event)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """Asks it to stop and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=LONG_SECONDS)


@dataclass
class Runtime(Lapses):
    """What a test drives. Use `runtime` to make one.

    Attributes:
        python: where its services are installed.
        plugins: of the test, see tests/entry_points.py.
        forks: services begin as forks, where their sources are those of this process.
    """

    forks: ClassVar[bool] = False
    redis: RedisServer
    model: Path
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    routers: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)
    shims: list[Process] = field(default_factory=list)
    credentials: grpc.ChannelCredentials | None = None  # of a runtime over TLS
    python: str = sys.executable
    plugins: Path | None = None
    _num_started: dict[str, int] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Of the first router."""
        return self.routers[0].address

    @property
    def admin_metadata(self) -> tuple[tuple[str, str], ...]:
        """What an administrator's call carries; nothing where no keys are asked for."""
        key = self.environment.get(ADMIN_KEY_VARIABLE)
        return bearer(key) if key else ()

    def start_router(self, *flags: str, address: str = "") -> Process:
        """A further one; `address` of one that has ended, to take its place."""
        router = self.begin_router(*flags, address=address)
        self.wait_for_router(router)
        return router

    def begin_router(self, *flags: str, address: str = "") -> Process:
        """As `start_router`, which does not serve yet."""
        address = address or f"127.0.0.1:{free_port()}"
        arguments = ["kakeya_router", "--redis", self.redis.url, "--bind", address, *flags]
        router = self._start("router", address, arguments)
        self.routers.append(router)
        return router

    def wait_for_router(self, router: Process) -> None:
        wait_until(
            lambda: check(router.address, credentials=self.credentials) == "SERVING",
            f"the router serves; see {router.log}",
        )

    def start_worker(self, *flags: str, lanes: int = 8, address: str = "", joins: str = "") -> Process:
        """`joins`: all routers unless said. With --reverse it has no address."""
        address = "" if "--reverse" in flags else address or f"127.0.0.1:{free_port()}"
        joins = joins or ",".join(router.address for router in self.routers)
        shape = ["--sink", str(SINK), "--window", str(WINDOW), "--lanes", str(lanes), "--threads", "1"]
        where = ["--join", joins, *(["--bind", address] if address else [])]
        arguments = ["kakeya_worker", "--model", str(self.model), *where, *shape, *flags]
        worker = self._start("worker", address, arguments)
        self.workers.append(worker)
        return worker

    def start_http(self, *flags: str) -> Process:
        """An HTTP shim of the first router, once it finds that."""
        address = f"127.0.0.1:{free_port()}"
        arguments = ["kakeya_http_shim", "--router", self.address, "--bind", address, *flags]
        shim = self._start("http", address, arguments)
        self.shims.append(shim)
        wait_until(lambda: http_status(address, "/readyz") == 200, f"the HTTP shim is ready; see {shim.log}")
        return shim

    def list_workers(self) -> list[WorkerStatus]:
        with self._channel() as channel:
            call = AdminServiceStub(channel).ListWorkers
            return list(call(ListWorkersRequest(), timeout=LONG_SECONDS, metadata=self.admin_metadata).workers)

    def wait_for_workers(self, number: int) -> None:
        wait_until(lambda: len(self.list_workers()) == number, f"{number} workers have joined")

    def stop(self) -> None:
        """Shims first, so that they find a runtime in which to close their sessions."""
        stuck = [*_stop(self.shims), *_stop([*self.workers, *self.routers])]
        assert not stuck, f"did not stop within {LONG_SECONDS:g} s: {stuck}"

    def _channel(self) -> grpc.Channel:
        if self.credentials is None:
            return grpc.insecure_channel(self.address)
        return grpc.secure_channel(self.address, self.credentials)

    def _start(self, kind: str, address: str, arguments: list[str]) -> Process:
        number = self._num_started.get(kind, 0)
        self._num_started[kind] = number + 1
        log = self.directory / f"{kind}-{number}.log"
        with log.open("wb") as output:
            environment = {**os.environ, **self.environment}
            if self.forks and self.python == sys.executable and "PYTHONPATH" not in self.environment:
                return Process(ForkedService(arguments, environment, log, self.plugins), address, log)
            if self.plugins:
                environment["PYTHONPATH"] = str(self.plugins)
            command = [self.python, "-m", *arguments]
            return Process(subprocess.Popen(command, stdout=output, stderr=output, env=environment), address, log)


@contextmanager
def runtime(
    model: Path,
    directory: Path,
    *,
    num_workers: int = 2,
    router_flags: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    credentials: grpc.ChannelCredentials | None = None,
    redis: RedisServer | None = None,
    plugins: Path | None = None,
) -> Iterator[Runtime]:
    """A runtime with one router and some workers, stopped at the end; without `redis` on one of its own."""
    with ExitStack() as stack:
        store = redis or stack.enter_context(redis_server())
        made = Runtime(store, model, directory, environment or {}, credentials=credentials, plugins=plugins)
        stack.callback(made.stop)
        router = made.begin_router(*router_flags)
        for _ in range(num_workers):  # which load their model meanwhile
            made.start_worker()
        made.wait_for_router(router)
        made.wait_for_workers(num_workers)
        yield made


def _stop(processes: Sequence[Process]) -> list[str]:
    """Returns those that had to be killed."""
    for process in processes:
        if process.process.poll() is None:
            process.process.terminate()
    stuck = []
    for process in processes:
        try:
            process.process.wait(timeout=LONG_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            stuck.append(process.log.stem)
    return stuck


def http_status(address: str, path: str) -> int | None:
    """Of a GET; None where nobody answers."""
    connection = HTTPConnection(address, timeout=LONG_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Polls until a condition holds; AssertionError where it does not at a look that began after `seconds`."""
    deadline, pauses, is_late = time.monotonic() + seconds, _pauses(), False
    while not condition():
        assert not is_late, f"not within {seconds:g} s: {what}"
        time.sleep(next(pauses))
        is_late = time.monotonic() >= deadline


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = LONG_SECONDS) -> None:
    """As `wait_until`, for coroutines."""
    deadline, pauses, is_late = time.monotonic() + seconds, _pauses(), False
    while not await condition():
        assert not is_late, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(next(pauses))
        is_late = time.monotonic() >= deadline


async def settled(session: AsyncSession) -> SessionInfo:
    """The session's description once its cancelled operation has ended: an append is let in.

    Its history grows while the operation ends: all that the journal's groups have brought so far counts at once.
    """
    await session.append([])
    return await session.info()


def _pauses() -> Iterator[float]:
    """Seconds, longer and longer: to ask a runtime something takes time from those who start."""
    pause = 0.01
    while True:
        yield pause
        pause = min(0.15, 1.3 * pause)
