"""Kakeya's engine beside transformers and llama.cpp, stepped directly, in one interleaved run.

    python -m tests.benchmarks.engine_bench [--rounds 7] [--output DIR] [--json FILE]

One model of Qwen3-0.6B's shape with random weights. Every contestant has a process and as many threads of its own, and
waits while another is measured:

    Kakeya int8, bfloat16  the verifier as the engine steps it: `logits`, then `forward`; prefill in chunks
    transformers           `generate` with a DynamicCache, bfloat16
    llama.cpp              Q8_0; each case with the fastest of its settings, which are tried before
    memory read            as many bytes as int8 weights have, read once: the floor of a decode step

Exits with 1 where a bound of engine_figures.py is missed, with 2 where that could not be measured.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kakeya.bench import report_file
from kakeya.bench.report_file import NotWritable
from kakeya.bench.verdict import EXIT_UNDECIDED, exit_status
from tests.benchmarks import engine_checkpoint, engine_contestants, engine_markdown, engine_picture, engine_report
from tests.benchmarks import llama_cpp_environment as llama_cpp
from tests.benchmarks.engine_plan import Plan
from tests.benchmarks.engine_process import ContestantFailed
from tests.benchmarks.engine_run import Run
from tests.benchmarks.llama_cpp_environment import LlamaCppFailed
from tests.benchmarks.logged_command import CommandFailed
from tests.benchmarks.python_environment import BENCH

KEPT = BENCH / "engine"
"""Where the weights stay between runs, on a disk: int8 weights are kept beside them during one."""


def played(plan: Plan, kept: Path) -> Run:
    """A run that is over. Raises CommandFailed, ContestantFailed, LlamaCppFailed."""
    llama_cpp.prepare()
    checkpoint = engine_checkpoint.kept(kept, plan.shape)
    with emptied(kept / "run") as directory:
        engines = engine_contestants.engines(checkpoint, plan, directory / "cache")
        reader = engine_contestants.memory_read(checkpoint, plan, directory)
        run = Run(plan, {entrant.name: entrant for entrant in engines}, reader)
        run.play()
    return run


@contextmanager
def emptied(directory: Path) -> Iterator[Path]:
    """A directory for one run, with nothing in it of a run that was killed."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def files(document: Mapping[str, Any]) -> dict[str, bytes]:
    """What lies beside the JSON document."""
    return {
        "engine.md": engine_markdown.page(document).encode(),
        "engine.png": engine_picture.draw(document).png,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=Plan().num_rounds, help="(default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path("build/engine"), help="of the report (default: build/engine)"
    )
    parser.add_argument("--json", type=Path, help="where to write the report's JSON, too")
    asked = parser.parse_args()
    try:
        report_file.prepare(asked.output)
        run = played(replace(Plan(), num_rounds=asked.rounds), KEPT)
        document = engine_report.document(run)
        report_file.write_all(asked.output / "engine.json", document, files)
    except (CommandFailed, ContestantFailed, LlamaCppFailed, NotWritable) as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return EXIT_UNDECIDED
    if asked.json:
        shutil.copy(asked.output / "engine.json", asked.json)
    print(engine_markdown.page(document))
    return exit_status(engine_report.judged(run)[1])


if __name__ == "__main__":
    sys.exit(main())
