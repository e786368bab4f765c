"""A proof: what it is asked, how it is run, and what it prints."""

import secrets
import sys
import tempfile
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from pydantic_settings import SettingsConfigDict
from rich.console import Console

from kakeya_shared.settings.service import ServiceSettings, setting
from tests.soak.progress import Progress, watched
from tests.soak.report import Report

_LINE_COLUMNS = 200  # where there is no terminal


class Proof(ServiceSettings):
    """Base of all proofs: `python -m tests.soak NAME --help` lists a proof's flags; its variables are KAKEYA_SOAK_*."""

    json_file: Path | None = setting(None, "where the outcome is written as JSON", unit="file", reason="none")
    logs: Path | None = setting(
        None, "where the logs of the processes stay, and all other files", unit="directory", reason="removed at the end"
    )

    @classmethod
    def named(cls, name: str) -> SettingsConfigDict:
        """The model_config of a proof."""
        own = SettingsConfigDict(cli_prog_name=f"python -m tests.soak {name}", cli_shortcuts={"json-file": "json"})
        return cls.configured(command="soak") | own

    @abstractmethod
    def prove(self, directory: Path, progress: Progress) -> Report:
        """Runs it on a runtime of its own, with its files in a directory."""

    def run(self, directory: Path | None = None) -> Report:
        """With progress on standard error; without `directory` where it is to keep its logs, if anywhere."""
        name = self._program().rpartition(" ")[2]
        with tempfile.TemporaryDirectory() as passing, watched(Console(stderr=True), name) as progress:
            place = directory or self.logs or Path(passing)
            place.mkdir(parents=True, exist_ok=True)
            return self.prove(place, progress)

    def main(self) -> int:
        """Runs it and prints what it found; the exit status is 1 where the proof is broken."""
        report = self.run()
        report.show(Console(width=None if sys.stdout.isatty() else _LINE_COLUMNS))
        if self.json_file is not None:
            report.write(self.json_file)
        return 0 if report.passed else 1


class SeededProof(Proof):
    """Base of those that draw by chance."""

    SEED: ClassVar[str]

    seed: int = setting(
        help="of an earlier run, to see it again", reason="a new one", default_factory=lambda: secrets.randbits(32)
    )

    def run(self, directory: Path | None = None) -> Report:
        """Tells its seed first, as `make` takes it."""
        print(f"{self.SEED}={self.seed}", flush=True)
        return super().run(directory)
