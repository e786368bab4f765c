"""Runs the core tests several times on a machine that is kept busy: none of them may wait for luck.

    python scripts/test_busy.py [--runs 5] [--loops 2]

Beside `make test` processes run that do nothing but compute, one for each core of two. Exits with 1 where a run fails.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# It ends by itself, too, should nobody be left to end it.
LOOP = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def main(num_runs: int, num_loops: int) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = []
    with busy(num_loops):
        for number in range(num_runs):
            started = time.monotonic()
            status = subprocess.run(["make", "test"], cwd=ROOT, check=False).returncode
            results.append(status)
            result = "passed" if status == 0 else f"failed ({status})"
            print(f"busy run {number + 1} of {num_runs}: {result}, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{results.count(0)} of {num_runs} runs passed beside {num_loops} busy loops")
    return 1 if any(results) else 0


@contextmanager
def busy(num_loops: int) -> Iterator[None]:
    """Keeps so many cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(num_loops)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, metavar="NUMBER", help="of the core tests")
    parser.add_argument("--loops", type=int, default=2, metavar="NUMBER", help="of processes that compute beside them")
    given = parser.parse_args()
    sys.exit(main(given.runs, given.loops))
