"""A process that fills every slot of a slab and prints its anonymous memory in bytes.

python -m tests.integration.fill_slab CHECKPOINT SLAB_BYTES
"""

import ctypes
import sys
from pathlib import Path

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.torch_backend import TorchVerifier


def anonymous_bytes() -> int:
    """Resident anonymous memory of this process (Linux: smaps_rollup)."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise LookupError("no Anonymous line")


def main(checkpoint: str, slab_bytes: int) -> None:
    verifier = TorchVerifier(checkpoint, weights="float32", kv_dtype="auto", num_threads=2, cache_directory=None)
    geometry = LaneGeometry(sink=4, window=64, chunk=32)
    lane_bytes = geometry.num_slots * verifier.facts.kv_bytes_per_token
    engine = Engine(verifier, geometry, slab_bytes // lane_bytes, step_tokens=128)
    engine.start()
    appends = []
    for number in range(engine.lanes.num_lanes):
        # The division of the lane whose sinks and ring fill every slot.
        engine.open(str(number), 1, SessionOptions(sink=18, window=50)).result()
        append = Append(str(number), 1, 0, tuple(range(geometry.num_slots)))
        engine.submit(append)
        appends.append(append)
    for append in appends:
        append.future.result()
    engine.close("0", 1).result()  # between two steps: nothing of the last one's own is left then
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # nor what malloc keeps of it, which differs by 250 MB from run to run
    print(anonymous_bytes())
    engine.shut_down()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
