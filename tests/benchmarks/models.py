"""Models with random weights, of which only the shape matters and not what they say."""

import os
from pathlib import Path
from typing import Any

from kakeya_bench.engine.plan import SHAPE
from kakeya_shared.settings.service import setting
from tests.benchmarks.bench import BenchSettings, Stage


def save(directory: Path, **other: Any) -> Path:
    """Of Qwen3-0.6B's shape but for what is said otherwise, in bfloat16; returns the directory."""
    # Here, since torch reads the settings of its threads when it is first imported, and some set them later.
    import torch

    from kakeya_bench.rivals.checkpoint import save_random_qwen3

    return save_random_qwen3(directory, dtype=torch.bfloat16, **{**SHAPE, **other})


class ModelSettings(BenchSettings):
    """Of a bench that any model serves."""

    model: Path | None = setting(None, "a checkpoint", reason="a random one of Qwen3-0.6B's shape", metavar="DIR")

    def made(self, stage: Stage, **other: Any) -> Path:
        """The checkpoint; `other` is of the random one."""
        stage.show(0.0, "making the model")
        return self.model or save(stage.directory / "model", **other)


def num_threads() -> str:
    """The flag's value of a worker that has the whole machine."""
    return str(len(os.sched_getaffinity(0)))
