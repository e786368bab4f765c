"""One session on a verifier, without an engine."""

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import Verifier


def logits_after(verifier: Verifier, ids: list[int]) -> NDArray[np.float32]:
    """The logits after a few tokens; [vocab]."""
    geometry = LaneGeometry(sink=4, window=len(ids), chunk=len(ids))
    verifier.allocate(geometry, 1)
    lane = Lane(geometry, 0, sink_window(SessionOptions(), geometry))
    row = lane.row(tuple(ids))
    verifier.forward([row])
    lane.commit(row)
    return verifier.logits([0])[0]
