"""The lane that is taken next: its memory is there before a session comes."""

from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.host.daemon_threads import DaemonThreads

# Steps and restores go first; who comes before it is done waits for the rest of the pages as he would have for all.
_NICENESS = 10


class LaneAhead:
    """Has the pages of lanes made by a thread of its own.

    The system takes longer to make a page than a prefill or a restore to write it, and both would wait for it.
    """

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._populated: set[int] = set()
        self._threads = DaemonThreads(1, "lane-ahead", niceness=_NICENESS)

    def prepare(self, lane: int) -> None:
        """Of the lane with this index, the first time that it is named. One thread at a time may ask."""
        if lane not in self._populated:
            self._populated.add(lane)
            self._threads.submit(lambda: self._verifier.populate_lane(lane))

    def close(self, timeout_seconds: float) -> None:
        """Waits for the lane in the making."""
        self._threads.close(timeout_seconds)
