"""Verifiers with what the gates of `kakeya bench session` must find; plugins of a worker that a test starts."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kakeya_worker.engine.seams.row import Row
from kakeya_worker.torch_backend import TorchVerifier
from tests import entry_points

LEAKED_BYTES_A_STEP = 200_000
SECONDS_A_STEP = 1e-6
"""Of the first; the n-th takes n squared times as long: so the tail is told from the head on a busy machine, too."""
NAMES = {"leaking": "LeakingVerifier", "slowing": "SlowingVerifier", "miscounting": "MiscountingVerifier"}


class LeakingVerifier(TorchVerifier):
    """Keeps something of every step."""

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        self._kept: list[np.ndarray] = []

    def forward(self, rows: Sequence[Row]) -> None:
        super().forward(rows)
        self._kept.append(np.ones(LEAKED_BYTES_A_STEP, dtype=np.uint8))


class SlowingVerifier(TorchVerifier):
    """Takes longer with every step."""

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        self._num_steps = 0

    def forward(self, rows: Sequence[Row]) -> None:
        super().forward(rows)
        self._num_steps += 1
        time.sleep(self._num_steps**2 * SECONDS_A_STEP)


class MiscountingVerifier(TorchVerifier):
    """Says that a token takes half of what it takes."""

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        self.facts = replace(self.facts, kv_bytes_per_token=self.facts.kv_bytes_per_token // 2)


def install(directory: Path) -> None:
    """Makes them plugins for processes that have the directory on their path."""
    found = {name: f"{__name__}:{verifier}" for name, verifier in NAMES.items()}
    entry_points.install(directory, "kakeya.verifier", found)
