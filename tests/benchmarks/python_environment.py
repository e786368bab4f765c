"""Python packages that only a benchmark needs, in a virtual environment of their own."""

import shutil
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.logged_command import run_logged

ROOT = Path(__file__).parents[2]
BENCH = ROOT / ".bench"  # what benchmarks install and compile; not in git


@dataclass(frozen=True)
class PythonEnvironment:
    """One environment; it is made on first use.

    Attributes:
        directory: where.
        requirements: pip's file; versions that it leaves open are those of constraints.txt.
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
    def log(self) -> Path:
        """What pip said."""
        return self.directory / "build.log"

    @property
    def is_ready(self) -> bool:
        """Whether `prepare` has nothing to do."""
        return self._installed.is_file() and self._installed.read_text() == self.requirements.read_text()

    def prepare(self) -> None:
        """Makes the environment where it is missing or of other requirements.

        Raises:
            CommandFailed: pip failed.
        """
        if self.is_ready:
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        venv.create(self.directory, symlinks=True, with_pip=True)
        run_logged(
            [
                *(self.python, "-m", "pip", "install", "-v"),
                *("-r", self.requirements, "-c", ROOT / "constraints.txt"),
            ],
            self.log,
        )
        shutil.copy(self.requirements, self._installed)

    @property
    def _installed(self) -> Path:
        return self.directory / "installed-requirements.txt"  # written last: what broke off is begun again
