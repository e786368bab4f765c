"""Processes that are spawned by a bench import its main module again, but for one of this name: they need no torch."""

import sys

from tests.benchmarks import bench
from tests.benchmarks.gguf.models import ModelsSettings, measure

if __name__ == "__main__":
    sys.exit(bench.main(ModelsSettings, measure))
