"""Python packages that only a bench needs, in a virtual environment of their own."""

import shutil
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from kakeya_bench.rivals.command import run_logged

BENCH = Path(".bench").absolute()  # what benches install and compile, in the working directory; not in git
CONSTRAINTS = Path("constraints.txt").absolute()  # where the repository is the working directory


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
        """Makes the environment where it is missing or of other requirements.

        Raises:
            CommandFailed: pip failed.
        """
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
