"""Commands that take minutes: what they print goes to a log, how far they are to stderr; packages that they need."""

import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_COMPILED = re.compile(r"\[(\d+)/(\d+)\]")  # ninja's progress
_PROGRESS_SECONDS = 15.0
_NUM_LOG_LINES = 20
BENCH = Path(".bench").absolute()  # what benches install and compile, in the working directory; not in git
CONSTRAINTS = Path("constraints.txt").absolute()  # where the repository is the working directory


class RivalFailed(Exception):
    """A rival could not be built or started, or did not run to its end; the message says why."""


class CommandFailed(RivalFailed):
    """A command ended with an error; the message quotes the end of its log."""


def run_logged(command: Sequence[str | Path], log: Path) -> None:
    """Runs a command and appends what it prints to a log. Raises CommandFailed: its status is not 0."""
    started = said = time.monotonic()
    with (
        log.open("a") as written,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        for line in process.stdout or ():
            written.write(line)
            compiled = _COMPILED.search(line)
            if compiled and time.monotonic() - said >= _PROGRESS_SECONDS:
                said = time.monotonic()
                say(f"  compiled {compiled[1]} of {compiled[2]} after {said - started:.0f} s")
    if process.returncode:
        raise CommandFailed(f"{command[0]} ended with status {process.returncode}; the end of {log}:\n{end_of(log)}")


def end_of(log: Path) -> str:
    """Its last lines, which tell why a process failed."""
    return "".join(log.read_text(errors="replace").splitlines(keepends=True)[-_NUM_LOG_LINES:])


def say(line: str) -> None:
    """Tells the waiting user."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class PythonEnvironment:
    """One environment; it is made on first use.

    Attributes:
        directory: where.
        requirements: pip's file; versions that it leaves open are those of CONSTRAINTS, where that is there.
    """

    directory: Path
    requirements: Path

    @property
    def programs(self) -> Path:
        """Where its `python` is, and what its packages bring."""
        return self.directory / "bin"

    @property
    def python(self) -> Path:
        return self.programs / "python"

    @property
    def packages(self) -> Path:
        """Where they are imported from."""
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self.directory)}))

    @property
    def log(self) -> Path:
        """What pip said."""
        return self.directory / "build.log"

    @property
    def is_ready(self) -> bool:
        """Whether `prepare` has nothing to do."""
        return self._installed.is_file() and self._installed.read_text() == self.requirements.read_text()

    def prepare(self) -> None:
        """Makes the environment where it is missing or of other requirements. Raises CommandFailed: pip failed."""
        if self.is_ready:
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        venv.create(self.directory, symlinks=True, with_pip=True)
        constraints = ("-c", CONSTRAINTS) if CONSTRAINTS.is_file() else ()
        run_logged([self.python, "-m", "pip", "install", "-v", "-r", self.requirements, *constraints], self.log)
        shutil.copy(self.requirements, self._installed)

    @property
    def _installed(self) -> Path:
        return self.directory / "installed-requirements.txt"  # written last: what broke off is begun again
