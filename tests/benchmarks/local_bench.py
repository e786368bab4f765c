"""Runs a bench of the SDK on a stack that is started for it.

python -m tests.benchmarks.local_bench [--up 'FLAGS OF KAKEYA UP'] BENCH [FLAGS OF THE BENCH]
"""

import argparse
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence

from tests.end_to_end.up_process import UpProcess

WINDOW = "236"
"""A pleasant size for kakeya-nano, which its sessions outgrow within a few turns."""


def run(up_flags: str, bench: str, flags: Sequence[str]) -> int:
    """Starts the stack, runs the bench, stops the stack; the bench's exit status."""
    with UpProcess("--ephemeral", "--bind", "127.0.0.1:0", *shlex.split(up_flags)) as up:
        up.wait_ready()
        command = [sys.executable, "-m", "kakeya", "bench", bench, "--address", up.address, *flags]
        print(shlex.join(command), file=sys.stderr, flush=True)
        status = subprocess.run(command).returncode
        up.wait_end(signal.SIGTERM)
        return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--up", default=f"--window {WINDOW}", help="flags of kakeya up (default: %(default)s)")
    parser.add_argument("bench", help="session, load or compare")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="of the bench")
    given = parser.parse_args()
    return run(given.up, given.bench, given.flags)


if __name__ == "__main__":
    sys.exit(main())
