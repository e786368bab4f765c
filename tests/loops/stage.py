"""A whole stack whose models say what a test has written: Redis, a router, workers, `kakeya http`, a recorder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.processes import PATIENT, Runtime, runtime
from tests.loops import played_verifier
from tests.loops.families import Family, FamilyModel
from tests.loops.recorder import Recorder, recorder

LANES = 4
"""Fewer than conversations: sessions are parked and resumed."""


@dataclass(frozen=True)
class Stage:
    """What a test drives.

    Attributes:
        models: by the names of their families.
    """

    runtime: Runtime
    recorder: Recorder
    models: dict[str, FamilyModel]

    @property
    def base_url(self) -> str:
        return f"http://{self.recorder.address}/v1"


@contextmanager
def stage(directory: Path, families: Sequence[Family], window: int, *shim_flags: str) -> Iterator[Stage]:
    """With a worker for each family; stopped at the end.

    Args:
        window: tokens that a session keeps.
        shim_flags: beside those that it needs.
    """
    played_verifier.install(directory / "plugins")
    models = {family.name: FamilyModel.made(family, directory / family.model) for family in families}
    environment = PATIENT | {
        "KAKEYA_WORKER_BACKEND": played_verifier.BACKEND,
        "KAKEYA_WORKER_SNAPSHOTS": str(directory / "snapshots"),
    }
    logs = directory / "logs"
    logs.mkdir()
    with runtime(directory, logs, num_workers=0, environment=environment, plugins=directory / "plugins") as made:
        for model in models.values():
            made.model = model.folder  # of the next worker
            made.start_worker(f"--window={window}", lanes=LANES)
        made.wait_for_workers(len(models))
        tokenizers = [f"--tokenizer={model.family.model}={model.folder}" for model in models.values()]
        shim = made.start_http("--live-sessions", "on", *tokenizers, *shim_flags)
        with recorder(shim.address) as before:
            yield Stage(made, before, models)
