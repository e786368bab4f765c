"""How long contestants of `make bench-engine` take to load, and how much memory they hold."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.benchmarks.engine_case import Case
from tests.benchmarks.engine_checkpoint import drop_from_file_cache
from tests.benchmarks.engine_contestants import Entrant
from tests.benchmarks.engine_process import ContestantProcess

_NUM_SERVING_STEPS = 3

Fields = dict[str, Any]


def cold_load(entrant: Entrant) -> Fields:
    """`load` in a process that ends: the system was asked to read the files from disk, and nothing is converted yet."""
    drop_from_file_cache(entrant.files)
    with entrant.running() as process:
        return load(process, entrant)


def load(process: ContestantProcess, entrant: Entrant) -> Fields:
    """What the contestant says, and the process's memory until then."""
    with process.watched() as memory:
        facts: Fields = process.ask("load", **entrant.load)
    return {**facts, **asdict(memory[0])}


def serving_memory(entrant: Entrant, case: Case, settings: Mapping[str, Any]) -> Fields:
    """Of a process that decodes full sessions; what it took to fill them is not in it.

    Args:
        settings: more arguments of `open`.
    """
    with entrant.running() as process:
        process.ask("load", **entrant.load)
        process.ask("open", window=case.window, cases=[case.fields], **entrant.open, **settings)
        with process.watched() as memory:
            process.measure(case, _NUM_SERVING_STEPS)
    return asdict(memory[0])
