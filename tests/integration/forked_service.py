"""Services that tests start as forks of a process that has imported them already.

To import a service takes one to three seconds of a processor, a hundred times as long as to fork. What runs is what
`python -m` runs, in a process of its own with its own environment, log and signals; that commands start from nothing
is shown by the end-to-end tests.
"""

import gc
import io
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

_IMPORTED = [
    *(
        f"{part}.{module}"
        for part in ("kakeya_router", "kakeya_worker", "kakeya_http_shim")
        for module in ("settings", "program")
    ),
    "kakeya_worker.torch_backend",
]
_context = get_context("forkserver")
_context.set_forkserver_preload(_IMPORTED)


class ForkedService:
    """As much of a `subprocess.Popen` as tests use.

    Args:
        plugins: where those of a test are, see tests/entry_points.py.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], log: Path, plugins: Path | None = None
    ) -> None:
        path = [os.fspath(plugins)] if plugins else []
        arguments = (list(words), dict(environment), os.fspath(log), os.getcwd(), path)
        self._process = _context.Process(target=_become, args=arguments, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if (status := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # the server of forks has waited for it, and its status is on the way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become(words: list[str], environment: dict[str, str], log: str, directory: str, path: list[str]) -> None:
    """In the fork: what `python -m` does with these words."""
    gc.freeze()  # what was imported stays, and is shared for as long as nobody looks at it
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = path
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    for output in (1, 2):
        os.dup2(file, output)
    os.close(file)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
