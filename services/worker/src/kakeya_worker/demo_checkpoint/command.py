"""`kakeya demo-checkpoint`: makes the small model that the demo and the tests use."""

import argparse
import sys
from pathlib import Path

SUMMARY = "make the small seeded random Qwen3 checkpoint that `kakeya demo` uses (idempotent)"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kakeya demo-checkpoint", description=SUMMARY)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="directory to make (default: ${XDG_DATA_HOME:-~/.local/share}/kakeya/demo-checkpoint)",
    )
    arguments = parser.parse_args(argv)
    try:
        from kakeya_worker.demo_checkpoint import checkpoint
    except ModuleNotFoundError as error:
        return _fail(f"the module {error.name!r} is missing; install it with: pip install 'kakeya-worker[torch]'")
    directory = arguments.output or checkpoint.default_directory()
    try:
        checkpoint.ensure_checkpoint(directory)
    except (checkpoint.NotADemoCheckpoint, OSError) as error:
        return _fail(str(error))
    print(directory)
    return 0


def _fail(message: str) -> int:
    print(f"kakeya demo-checkpoint: error: {message}", file=sys.stderr)
    return 1
