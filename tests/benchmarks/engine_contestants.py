"""Who takes part in `make bench-engine`."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks import engine_memory_read, engine_process
from tests.benchmarks.engine_checkpoint import EngineCheckpoint
from tests.benchmarks.engine_plan import Plan
from tests.benchmarks.engine_process import ContestantProcess
from tests.benchmarks.llama_cpp_environment import BINDING

INT8, BFLOAT16, TRANSFORMERS, LLAMA = "Kakeya int8", "Kakeya bfloat16", "transformers", "llama.cpp"
READ = "memory read"
_KAKEYA = "tests.benchmarks.engine_kakeya"


@dataclass(frozen=True)
class Entrant:
    """How a contestant is started.

    Attributes:
        name: in reports.
        module: of its process.
        load: arguments of its `load`.
        open: arguments of its `open`.
        files: that it loads.
        python: of its environment.
    """

    name: str
    module: str
    load: Mapping[str, Any]
    open: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()
    python: Path = Path(sys.executable)

    def running(self) -> AbstractContextManager[ContestantProcess]:
        """Its process, which has loaded nothing yet."""
        return engine_process.running(self.python, self.module)


def engines(checkpoint: EngineCheckpoint, plan: Plan, cache_directory: Path) -> list[Entrant]:
    """Those that hold the model, in the order of reports.

    Args:
        cache_directory: of Kakeya's int8 weights.
    """
    weights = [checkpoint.directory / "model.safetensors"]
    common = {"model": str(checkpoint.directory), "num_threads": plan.num_threads}
    kakeya, chunk = {**common, "cache_directory": str(cache_directory)}, {"chunk": plan.chunk}
    return [
        Entrant(INT8, _KAKEYA, {**kakeya, "weights": "int8"}, chunk, weights),
        Entrant(BFLOAT16, _KAKEYA, {**kakeya, "weights": "bfloat16"}, chunk, weights),
        Entrant(TRANSFORMERS, "tests.benchmarks.engine_transformers", {**common, "dtype": "bfloat16"}, {}, weights),
        Entrant(
            LLAMA,
            "tests.benchmarks.engine_llama_cpp",
            {**common, "model": str(checkpoint.gguf)},
            files=[checkpoint.gguf],
            python=BINDING.python,
        ),
    ]


def memory_read(checkpoint: EngineCheckpoint, plan: Plan, directory: Path) -> Entrant:
    """Reads as many bytes as int8 weights have, and does nothing with them.

    Raises:
        CommandFailed: its reading loop does not compile.
    """
    arguments = {
        "library": str(engine_memory_read.compiled(directory)),
        "num_bytes": checkpoint.int8_weight_bytes,
        "num_threads": plan.num_threads,
    }
    return Entrant(READ, "tests.benchmarks.engine_memory_read", arguments)
