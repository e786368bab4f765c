"""A session's lane in the slab of a draft model, as integers: what it holds, and what it does not hold yet."""

from array import array
from collections.abc import Sequence
from itertools import takewhile

from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.row import Row

_ID_BYTES = array("i").itemsize


class DraftLane:
    """It keeps sinks and a window, as the session's own lane does, and its history is what it was told.

    Of a history that it is far behind it takes up no more than what it keeps: as much as it would see in the end.

    Args:
        index: in the slab.

    Attributes:
        length: tokens of the history whose K and V it holds.
    """

    def __init__(self, index: int, geometry: LaneGeometry) -> None:
        self._index = index
        self._chunk = geometry.chunk
        self._retention = sink_window(SessionOptions(), geometry)
        self.restart(())

    def restart(self, token_ids: Sequence[int]) -> None:
        """Forgets everything; see `kakeya_worker.engine.seams.proposer.Proposer.restart`."""
        self.length = 0
        self._first: array[int] = array("i")  # the history's first tokens, as many as there are sinks
        self._behind: array[int] = array("i")  # the history's tokens that the lane does not hold yet
        self._ahead: list[int] = []  # that were drafted: K and V are there, whether they come is not known
        self.extend(token_ids)

    def extend(self, token_ids: Sequence[int]) -> None:
        """The history goes on with these. Of those that were drafted nothing is computed again."""
        pairs = zip(token_ids, self._ahead, strict=False)
        num_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.length += num_right
        self._ahead = self._ahead[num_right:] if num_right == len(token_ids) else []
        self._first.extend(token_ids[: self._retention.sink - len(self._first)])
        self._behind.extend(token_ids[num_right:])
        if len(self._behind) > self._retention.capacity:
            self.length = 0
            self._behind = self._first + self._behind[-self._retention.window :]

    @property
    def num_behind(self) -> int:
        """Tokens of the history that it does not hold yet."""
        return len(self._behind)

    @property
    def is_far_behind(self) -> bool:
        """One row does not take in all of them, and one token more."""
        return len(self._behind) >= self._chunk

    @property
    def id_bytes(self) -> int:
        """Of the ids that it keeps beside its slots, at most."""
        return 2 * _ID_BYTES * self._retention.capacity

    def catch_up(self, num_tokens: int) -> Row:
        """The row of the next tokens that it does not hold yet; they are the history's, and so stay."""
        row = self._row(self._behind[: min(num_tokens, self._chunk)])
        self._behind = self._behind[len(row.token_ids) :]
        self.length = row.end
        return row

    def begin(self, token_id: int) -> Row:
        """The row of all that it does not hold yet, and a token that may come behind it; what was ahead is void."""
        row = self._row((*self._behind, token_id))
        self.length += len(self._behind)
        self._behind, self._ahead = array("i"), [token_id]
        return row

    def go_on(self, draft: int) -> Row:
        """The row of one token more that may come."""
        row = Row(self._index, self.length + len(self._ahead), (draft,), self._retention)
        self._ahead.append(draft)
        return row

    def _row(self, token_ids: Sequence[int]) -> Row:
        return Row(self._index, self.length, tuple(token_ids), self._retention)
