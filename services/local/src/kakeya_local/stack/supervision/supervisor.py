"""The running supervisord of a stack."""

import asyncio
import http.client
import os
import subprocess
import time
import xmlrpc.client
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import psutil
from supervisor.xmlrpc import SupervisorTransport

from kakeya_local.errors import StackError
from kakeya_local.stack import child_python
from kakeya_local.stack.data_directory import DataDirectory
from kakeya_local.stack.program import Program, Stage
from kakeya_local.stack.supervision import bound_process
from kakeya_local.stack.supervision.supervisor_config import configure, socket_path

_POLL_SECONDS = 0.05
_MARGIN_SECONDS = 5


@dataclass(frozen=True)
class ProcessStatus:
    """One process of the stack.

    Attributes:
        state: supervisord's word: STARTING, RUNNING, BACKOFF, EXITED, FATAL, STOPPING or STOPPED.
        pid: 0 while it does not run.
        exit_status: of its last end, where supervisord has kept it.
    """

    name: str
    state: str
    pid: int
    exit_status: int


class Supervisor:
    """Starts and stops the processes of a stack; use as an async context manager.

    Args:
        environment: for all of them, beside this process's own. Nothing of it is written anywhere.

    Leaving stops the stages in reverse order and returns when no process is left.
    """

    def __init__(
        self,
        programs: list[Program],
        directory: DataDirectory,
        *,
        stop_grace_seconds: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._environment = dict(environment or {})
        self._config = configure(programs, directory, stop_grace_seconds=stop_grace_seconds)
        self._full_names = {program.name: f"{program.stage.name.lower()}:{program.name}" for program in programs}
        self._stop_limit_seconds = len(Stage) * stop_grace_seconds + _MARGIN_SECONDS
        self._last_words = directory.runtime / "supervisor.stderr"
        self._process: subprocess.Popen[bytes]

    async def __aenter__(self) -> Self:
        config = self._directory.runtime / "supervisor.conf"
        self._config.write(config)
        with self._last_words.open("wb") as stderr:
            # Without an await, so that a cancel cannot come between the start and the duty to stop.
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603  # brief; our own command line
                bound_process.command(*child_python.module("kakeya_local.stack.supervision.supervisord", str(config))),
                env=os.environ
                | child_python.environment(os.environ)
                | self._environment
                | {bound_process.PARENT_VARIABLE: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # the terminal's Ctrl-C is for `kakeya up`, which then stops in order
                pass_fds=(self._directory.lock_fd,),  # the directory is locked as long as anything may use it
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is not None:
            return
        tree = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
        self._process.terminate()
        deadline = time.monotonic() + self._stop_limit_seconds
        cancelled: asyncio.CancelledError | None = None
        while self._process.poll() is None:
            if time.monotonic() > deadline:
                _kill(tree)
            try:
                await asyncio.sleep(_POLL_SECONDS)
            except asyncio.CancelledError as told:  # first all is stopped, so that nothing is left
                cancelled = told
        if cancelled is not None and error is None:
            raise cancelled

    async def processes(self) -> list[ProcessStatus]:
        """What supervisord knows of the processes; empty until it listens.

        Raises:
            StackError: supervisord is gone.
        """
        if self._process.poll() is not None:
            words = self._last_words.read_text(errors="replace").splitlines()
            told = [line for line in words if line.strip() and not line.startswith("For help")]
            reason = told[-1] if told else f"status {self._process.returncode}"
            raise StackError(f"the supervisor ended unexpectedly: {reason}")
        return await asyncio.to_thread(self._all_process_info)

    async def start(self, name: str) -> None:
        """Has a process that supervisord has given up started again, as often as at first."""
        await asyncio.to_thread(self._ask, "startProcess", self._full_names[name], False)

    def _all_process_info(self) -> list[ProcessStatus]:
        return [
            ProcessStatus(info["name"], info["statename"], info["pid"], info["exitstatus"])
            for info in self._ask("getAllProcessInfo") or []
        ]

    def _ask(self, method: str, *arguments: object) -> Any:
        """What supervisord answers; None where it does not listen, yet or any more, or refuses."""
        transport = SupervisorTransport(serverurl=f"unix://{socket_path(self._directory)}")
        try:
            server: Any = xmlrpc.client.ServerProxy("http://localhost", transport=cast(Any, transport))
            return getattr(server.supervisor, method)(*arguments)
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            return None
        finally:
            transport.close()


def _kill(tree: list[psutil.Process]) -> None:
    for process in tree:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue  # it ended by itself
