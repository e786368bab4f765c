"""Runs a bench on a stack that is started for it.

python -m tests.benchmarks.sessions.local_bench [--up 'FLAGS OF KAKEYA UP'] [--qwen3] BENCH [FLAGS OF THE BENCH]

With --qwen3 the model has Qwen3-0.6B's shape and random weights, at sink 4 and window 64. A full session has exactly
7,798,784 live bytes then: 28 layers x 8 heads x 128 x 2 bytes x 2 are 114,688 a token, for 68 tokens.
"""

import argparse
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import models
from tests.end_to_end.up_process import UpProcess

WINDOW = "236"
"""A pleasant size for kakeya-nano, which its sessions outgrow within a few turns."""


def run(up_flags: str, bench: str, flags: Sequence[str]) -> int:
    """Starts the stack, runs the bench, stops the stack; the bench's exit status.

    Ctrl-C is for the bench, which writes its report then and ends with 130.
    """
    with UpProcess("--ephemeral", "--bind", "127.0.0.1:0", *shlex.split(up_flags), ignored=[signal.SIGINT]) as up:
        up.wait_ready()
        command = [sys.executable, "-m", "kakeya", "bench", bench, "--address", up.address, *flags]
        print(shlex.join(command), file=sys.stderr, flush=True)
        process = subprocess.Popen(command)
        try:
            status = process.wait()
        except KeyboardInterrupt:
            status = process.wait()
        up.wait_end(signal.SIGTERM)
        return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--up", default=f"--window {WINDOW}", help="flags of kakeya up (default: %(default)s)")
    parser.add_argument("--qwen3", action="store_true", help="with a model of Qwen3-0.6B's shape")
    parser.add_argument("bench", help="session, load or compare")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="of the bench")
    given = parser.parse_args()
    if not given.qwen3:
        return run(given.up, given.bench, given.flags)
    with tempfile.TemporaryDirectory(prefix="kakeya-qwen3-") as directory:
        print("making the model", file=sys.stderr, flush=True)
        model = models.save(Path(directory) / "qwen3-0.6b-shape")
        return run(f"--model {model} --sink 4 --window 64", given.bench, ["--config", str(model), *given.flags])


if __name__ == "__main__":
    sys.exit(main())
