"""A running local stack: supervised, watched, and stopped in order."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from kakeya_local.errors import StackError
from kakeya_local.settings import UpSettings
from kakeya_local.stack.data_directory import DataDirectory, open_directory
from kakeya_local.stack.planning.plan import Plan, make_plan
from kakeya_local.stack.planning.ports import Ports
from kakeya_local.stack.program import HTTP, OBSERVE, PROMETHEUS, REDIS, ROUTER
from kakeya_local.stack.readiness import is_serving, joined_workers, open_channel
from kakeya_local.stack.supervision.full_disk import FullDisk
from kakeya_local.stack.supervision.last_words import last_words
from kakeya_local.stack.supervision.loading_progress import progress
from kakeya_local.stack.supervision.supervisor import ProcessStatus, Supervisor
from kakeya_shared.process.service_process import EXIT_CONFIG
from kakeya_stubs.admin.v1.admin_pb2 import WorkerStatus

_POLL_SECONDS = 0.2
_WATCH_SECONDS = 0.5
_MAX_RESTARTS_BEFORE_READY = 3

Report = Callable[[str], None]


@dataclass(frozen=True)
class ListeningProcess:
    """A row of the table that `kakeya up` prints; `metrics` is HOST:PORT, or "" where it shows none."""

    name: str
    address: str
    pid: int
    log: Path
    metrics: str


class Stack:
    """A stack between its start and its end; `running` makes one.

    Attributes:
        plan: what it runs.
        directory: where its data and logs are.
        workers: as they joined, once it is ready.
    """

    def __init__(self, plan: Plan, supervisor: Supervisor, directory: DataDirectory, report: Report) -> None:
        self.plan = plan
        self.directory = directory
        self.workers: list[WorkerStatus] = []
        self._supervisor = supervisor
        self._report = report
        self._started = time.monotonic()
        self._worker_names = plan.worker_names
        self._pids: dict[str, int] = {}
        self._num_restarts: Counter[str] = Counter()
        self._observers = set(plan.observers.commands) if plan.observers else set[str]()
        is_kept = not plan.settings.ephemeral
        self._disk = FullDisk(directory, supervisor, report) if is_kept else None

    async def wait_ready(self) -> None:
        """Returns when the router serves, all workers have joined, and the HTTP shim, if any, is ready.

        Raises:
            StackError: a process cannot start, or all of it takes too long.
        """
        deadline = time.monotonic() + self.plan.settings.ready_timeout_seconds
        progress = ""
        async with open_channel(self.plan.connection, is_own=True) as channel:
            while missing := await self._missing(channel):
                if missing != progress:
                    progress = missing
                    self._report(f"waiting for {missing}")
                if time.monotonic() > deadline:
                    raise StackError(f"gave up waiting for {missing} (--ready-timeout-seconds)")
                await self._check(await self._supervisor.processes())
                self._check_progress()
                await asyncio.sleep(_POLL_SECONDS)

    async def watch(self) -> None:
        """Runs until something that the stack cannot do without is lost.

        Raises:
            StackError: what and why.
        """
        while True:
            await self._check(await self._supervisor.processes())
            await asyncio.sleep(_WATCH_SECONDS)

    async def table(self) -> list[ListeningProcess]:
        """Every process with its address, in the order in which they start; what only watches comes last."""
        addresses = {REDIS: str(self.plan.redis), ROUTER: str(self.plan.bind)}
        addresses |= {worker.worker_id: worker.address for worker in self.workers}
        http = {HTTP: str(self.plan.http.bind)} if self.plan.http else {}
        observers = self.plan.observers.addresses if self.plan.observers else {}
        watching = {name: str(place) for name, place in observers.items() if name in self._observers}
        addresses |= http | watching
        metrics = {**self.plan.metrics, **http, **{name: watching[name] for name in watching if name == PROMETHEUS}}
        pids = {status.name: status.pid for status in await self._supervisor.processes()}
        return [
            ListeningProcess(name, address, pids[name], self.directory.log(name), metrics.get(name, ""))
            for name, address in addresses.items()
            if name in pids
        ]

    async def _missing(self, channel: grpc.aio.Channel) -> str:
        if not await is_serving(channel):
            return "the router"
        joined = await joined_workers(channel, self.plan.connection.metadata)
        self.workers = [worker for worker in joined if self._is_of_this_run(worker)]
        num_wanted = len(self._worker_names)
        if len(self.workers) != num_wanted:
            counted = f"{len(self.workers)} of {num_wanted} have joined"
            return f"workers to load {Path(self.plan.model).name}: {counted}{self._loading()}"
        return await self._missing_http()

    def _loading(self) -> str:
        """How far one is, by its log."""
        said = (progress(self.directory.last_lines(name)) for name in self._worker_names)
        return next((f" ({line})" for line in said if line), "")

    async def _missing_http(self) -> str:
        if self.plan.http and (reason := await asyncio.to_thread(self.plan.http.entrance.unready)):
            return f"the HTTP shim: {reason}"
        return await self._missing_observer()

    async def _missing_observer(self) -> str:
        if PROMETHEUS not in self._observers or self.plan.observers is None:
            return ""
        reason = await asyncio.to_thread(self.plan.observers.unready)
        return f"Prometheus: {reason}" if reason else ""

    def _is_of_this_run(self, worker: WorkerStatus) -> bool:
        # Redis may still have a worker of a run that was killed, or one that joined from another machine.
        age_seconds = time.monotonic() - self._started
        return worker.worker_id in self._worker_names and worker.last_heartbeat_age_seconds < age_seconds

    async def _check(self, processes: list[ProcessStatus]) -> None:
        for status in processes:
            if status.name == REDIS and self._disk is not None and await self._disk.keeps_away(status):
                self._pids[REDIS] = status.pid or self._pids.get(REDIS, 0)
                continue
            if reason := self._cannot_go_on(status):
                self._give_up(status.name, reason)
            self._notice_restart(status)

    def _give_up(self, name: str, reason: str) -> None:
        """Goes on without what only watches; raises StackError for all others."""
        if self.plan.observers is None or name not in self.plan.observers.commands:
            raise StackError(f"{name}: {reason}")
        if name in self._observers:
            self._observers.discard(name)
            self._report(f"{name}: {reason}; the stack goes on without it")

    def _cannot_go_on(self, status: ProcessStatus) -> str:
        """Why a process will not run again, or "" where it runs or is about to."""
        if status.state not in ("BACKOFF", "EXITED", "FATAL"):
            return ""
        line = self._last_words(status.name)
        _, refusal, reason = line.partition(": error: ")
        # supervisord keeps no exit status of a process that ended while it was starting; its last line tells.
        if refusal and line.startswith("kakeya "):
            return reason
        if status.state == "EXITED" and status.exit_status == EXIT_CONFIG:
            return line
        return f"keeps ending; the last it said: {line}" if status.state == "FATAL" else ""

    def _notice_restart(self, status: ProcessStatus) -> None:
        before = self._pids.get(status.name, status.pid)
        if not status.pid:
            return
        self._pids[status.name] = status.pid
        if before != status.pid:
            self._num_restarts[status.name] += 1
            self._report(f"{status.name} ended and was started again (pid {status.pid})")

    def _check_progress(self) -> None:
        if self._disk is not None and self._disk.reason:
            raise StackError(f"{REDIS}: {self._disk.reason}")
        # supervisord counts only ends right after a start; loading a model may fail much later, each time.
        for name, num_restarts in self._num_restarts.items():
            if num_restarts > _MAX_RESTARTS_BEFORE_READY:
                self._give_up(name, f"keeps ending; the last it said: {self._last_words(name)}")

    def _last_words(self, process: str) -> str:
        return last_words(self.directory.last_lines(process))


@asynccontextmanager
async def running(settings: UpSettings, report: Report) -> AsyncIterator[Stack]:
    """A stack that is ready. Leaving stops it and returns when no process is left.

    Args:
        report: gets a line at each step of the start and when a process was started again.

    Raises:
        StackError: it cannot start; nothing is left running.
    """
    with open_directory(settings.data_dir, ephemeral=settings.ephemeral) as directory, Ports() as ports:
        plan = make_plan(settings, ports)
        programs = plan.programs(directory.path)
        if plan.observers:
            plan.observers.write(directory.path / OBSERVE)
            for note in plan.observers.notes:
                report(note)
        async with Supervisor(
            programs, directory, stop_grace_seconds=settings.stop_grace_seconds, environment=plan.environment
        ) as supervisor:
            stack = Stack(plan, supervisor, directory, report)
            await stack.wait_ready()
            try:
                yield stack
            finally:
                report("stopping")
