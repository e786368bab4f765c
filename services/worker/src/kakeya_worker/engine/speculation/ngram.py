"""The proposer `ngram`: what came before, comes again (prompt lookup; lookahead's n-gram pool, arXiv 2402.02057).

It finds where the session's last tokens stood before, the latest such place, and drafts what followed there. The last
2^17 tokens of the history are kept as ids, with a hash table of where runs of them end: 1 MiB a session, however long
its history is. So it also knows what the lane has forgotten, but not across a restart.
"""

from collections.abc import Sequence

import numpy as np

from kakeya_worker.engine.seams.geometry import LaneGeometry

ORDERS = (6, 3, 2)
"""Lengths of the runs that are looked for: the longer one is right more often."""
MAX_TOKENS = 15
MAX_BEHIND_SHORTEST = 2
"""Tokens that are drafted behind a run of the least length, which is wrong too often for more."""
_BITS = 17
NUM_KEPT = 1 << _BITS  # as many ids as places in the table
_MASK = (1 << 64) - 1
_FACTOR = 0x9E3779B97F4A7C15  # odd, of the golden ratio: the upper bits of products are well mixed
_PLACE_MASK = (1 << 32) - 1
_NOWHERE = 0
_FEW = 16  # tokens, up to which one after the other is faster than arrays


class NgramProposer:
    """See `kakeya_worker.engine.seams.proposer.Proposer`.

    Args:
        num_kept: tokens of the history.
    """

    max_tokens = MAX_TOKENS
    is_immediate = True

    def __init__(self, num_kept: int = NUM_KEPT) -> None:
        self._num_kept = num_kept
        self._ids = np.zeros(num_kept, np.int32)  # token number n at n mod num_kept
        self._places = np.zeros(1 << _BITS, np.uint32)  # by hash of a run: the number of the token behind it, mod 2^32
        self._end = 0  # tokens so far
        self._last: list[int] = []  # as many as the longest run has

    @property
    def memory_bytes(self) -> int:
        return self._ids.nbytes + self._places.nbytes

    def restart(self, token_ids: Sequence[int]) -> None:
        """As if these were the whole history."""
        if self._end:  # else the memory is not there yet
            self._places[:] = _NOWHERE
        self._end, self._last = 0, []
        self.extend(token_ids)

    def extend(self, token_ids: Sequence[int]) -> None:
        """A run is entered once the token behind it is there: else the last one would only find itself."""
        if len(token_ids) <= _FEW:
            for token_id in token_ids:
                self._add(token_id)
            return
        known = np.array([*self._last, *token_ids][-self._num_kept :], np.uint64)
        self._end += len(token_ids)
        numbers = np.arange(self._end - len(known), self._end)
        self._ids[numbers % self._num_kept] = known
        for order in ORDERS:
            num_runs = len(known) - order
            if num_runs > 0:
                hashes = np.zeros(num_runs, np.uint64)
                for offset in range(order):
                    hashes = (hashes + known[offset : offset + num_runs] + np.uint64(1)) * np.uint64(_FACTOR)
                # Of runs that are alike the latest stays.
                self._places[hashes >> np.uint64(64 - _BITS)] = numbers[order:].astype(np.uint32)
        self._last = known[-ORDERS[0] :].astype(np.int64).tolist()

    def _add(self, token_id: int) -> None:
        """As `extend`, of one: a tenth of what arrays take for it."""
        last, end = self._last, self._end
        for order in ORDERS:
            if len(last) >= order:
                self._places[_hashed(last[-order:])] = end & _PLACE_MASK
        self._ids[end % self._num_kept] = token_id
        self._end = end + 1
        last.append(token_id)
        del last[: -ORDERS[0]]

    def propose(self, token_id: int, num_tokens: int) -> Sequence[int]:
        """What followed the latest place of the longest run."""
        last = [*self._last, token_id]
        for order in ORDERS:
            if len(last) >= order and (number := self._find(last[-order:])) is not None:
                most = MAX_BEHIND_SHORTEST if order == ORDERS[-1] else MAX_TOKENS
                return self._from(number, token_id, min(num_tokens, most))
        return ()

    def _find(self, run: list[int]) -> int | None:
        """The number of the token behind the latest place of a run; None: there is none, or not any more."""
        place = int(self._places[_hashed(run)])
        number = self._end - ((self._end - place) & _PLACE_MASK)
        first = number - len(run)
        # What is found by a hash is looked at; a place that was overwritten since holds other tokens.
        if first < max(0, self._end - self._num_kept) or number >= self._end:
            return None
        return number if self._kept(first, number) == run else None

    def _from(self, number: int, token_id: int, num_tokens: int) -> list[int]:
        """So many tokens from there on; what repeats itself goes on so beyond the history's end."""
        known = self._kept(number, min(number + num_tokens, self._end))
        known += [token_id][: num_tokens - len(known)]
        period = self._end + 1 - number
        while len(known) < num_tokens:
            known.append(known[len(known) - period])
        return known

    def _kept(self, start: int, end: int) -> list[int]:
        """Tokens by their numbers."""
        first = start % self._num_kept
        found: list[int] = self._ids[first : first + end - start].tolist()
        found += self._ids[: end - start - len(found)].tolist()
        return found


def _hashed(run: list[int]) -> int:
    """Its place in the table."""
    hashed = 0
    for token_id in run:
        hashed = (hashed + token_id + 1) * _FACTOR & _MASK
    return hashed >> (64 - _BITS)


def ngram(geometry: LaneGeometry, vocab_size: int) -> NgramProposer:
    """See `kakeya_worker.engine.seams.proposer.NewProposer`."""
    return NgramProposer()
