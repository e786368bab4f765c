"""A verifier that takes much longer for a step than for a token more in it; a plugin of a worker that a test starts.

Large models do so, which have to be read for each step. On a busy machine the steps of a small one take what others
leave it, so that a draft may not be worth its price.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kakeya_worker.engine.seams.row import Row
from kakeya_worker.torch_backend import TorchVerifier
from tests import entry_points

BACKEND = "paused"
SECONDS_A_STEP = 0.006
_QUICK = "kakeya-nano"


class PausedVerifier(TorchVerifier):
    """Of every model but kakeya-nano, which drafts for the others."""

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        self._pause_seconds = 0.0 if Path(model).name == _QUICK else SECONDS_A_STEP

    def forward(self, rows: Sequence[Row]) -> None:
        super().forward(rows)
        time.sleep(self._pause_seconds)  # as if the weights were read, and the processor free meanwhile


def install(directory: Path) -> None:
    """Makes it a plugin for processes that have the directory on their path."""
    entry_points.install(directory, "kakeya.verifier", {BACKEND: f"{__name__}:{PausedVerifier.__name__}"})
