"""A verifier that computes what it is asked for, and then says what it is told to: time is real, tokens are known."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.seams.row import Row
from kakeya_worker.torch_backend import TorchVerifier

_CERTAIN = 1e9
"""Logit of the token that is said."""


class DictatedVerifier(TorchVerifier):
    """Of a lane without a dictation it says what the model says."""

    def __init__(
        self, model: str, *, weights: str, kv_dtype: str, num_threads: int, cache_directory: Path | None
    ) -> None:
        super().__init__(
            model, weights=weights, kv_dtype=kv_dtype, num_threads=num_threads, cache_directory=cache_directory
        )
        self._num_drafted: Counter[int] = Counter()
        self._num_accepted: Counter[int] = Counter()
        self._dictations: dict[int, Sequence[int]] = {}
        self._given: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # of histories
        self._drafted: dict[int, Row] = {}  # those rows of the latest step, as long as they are right

    def dictate(self, lane: int, token_ids: Sequence[int]) -> None:
        """Its session's whole history, by index; nothing: it says what the model says."""
        self._dictations[lane], self._given[lane] = token_ids, 0

    def give(self, lane: int, length: int) -> None:
        """Up to this length the history is appended, and not computed: what K and V hold changes no time."""
        self._given[lane] = length

    def take_counts(self) -> tuple[Counter[int], Counter[int]]:
        """Drafts that were checked since the last call, and right, by position behind the chosen token, from 0."""
        counts = self._num_drafted, self._num_accepted
        self._num_drafted, self._num_accepted = Counter(), Counter()
        return counts

    def forward(self, rows: Sequence[Row]) -> None:
        """See the seam."""
        self._drafted = {row.lane: row for row in rows if row.is_scored}
        for row in self._drafted.values():
            self._num_drafted.update(range(len(row.token_ids) - 1))
            self._num_accepted.update(range(len(row.token_ids) - 1))
        self._ends.update((row.lane, row.end) for row in rows)
        if computed := [row for row in rows if row.start >= self._given.get(row.lane, 0)]:
            super().forward(computed)

    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """See the seam; [lanes, vocab]."""
        found = super().logits(lanes)
        self._say(found, [(lane, self._ends.get(lane, 0)) for lane in lanes])
        return found

    def scored_logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """See the seam; [tokens of all, vocab]."""
        found = super().scored_logits(lanes)
        rows = [self._drafted[lane] for lane in lanes]
        self._say(found, [(row.lane, index) for row in rows for index in range(row.start + 1, row.end + 1)])
        return found

    def shorten(self, lane: int, num_tokens: int) -> None:
        """See the seam."""
        super().shorten(lane, num_tokens)
        row = self._drafted[lane]
        self._ends[lane] = row.start + num_tokens
        self._num_accepted.subtract(range(num_tokens - 1, len(row.token_ids) - 1))

    def _say(self, logits: NDArray[np.float32], places: Sequence[tuple[int, int]]) -> None:
        """The tokens at these indices of their lanes' histories, as far as they are dictated."""
        for of_token, (lane, index) in zip(logits, places, strict=True):
            dictation = self._dictations.get(lane, ())
            if index < len(dictation):
                of_token[dictation[index]] = _CERTAIN
