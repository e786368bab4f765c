"""Processes that are spawned by a bench import its main module again, but for one of this name: they need no torch."""

import sys

from tests.benchmarks import bench
from tests.benchmarks.int8.quality import Int8Settings, measure

if __name__ == "__main__":
    sys.exit(bench.main(Int8Settings, measure))
