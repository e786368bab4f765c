"""What appended tokens are worth: the log-probability of each, given all before it.

The first token of a row is judged by what the lane ends with before the forward pass, the others by the logits after
each of the row's tokens, of which those of one row are there at a time. Nothing precedes the first token of a history.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import structlog
from numpy.typing import NDArray

from kakeya_shared.errors.tree import Internal
from kakeya_worker.engine.lanes.operation import Append
from kakeya_worker.engine.sampling.sampling import token_detail
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier

_log = structlog.get_logger()
_OLD_PART = 0.75  # of what was measured before, in the mean


@dataclass
class ScoringCosts:
    """What scoring adds to a step.

    Attributes:
        token_seconds: of one token, a running mean; 0 until the first was scored.
    """

    token_seconds: float = 0.0

    def add(self, num_tokens: int, seconds: float) -> None:
        """Tells what so many tokens, one at least, took."""
        measured = seconds / num_tokens
        old_part = _OLD_PART if self.token_seconds else 0.0
        self.token_seconds = old_part * self.token_seconds + (1.0 - old_part) * measured


@dataclass
class Scoring:
    """Of one step's rows that are scored.

    Attributes:
        num_tokens, seconds: that were scored, and how long that took.
    """

    _verifier: Verifier
    num_tokens: int = field(init=False, default=0)
    seconds: float = field(init=False, default=0.0)

    def before(self, scored: Sequence[tuple[Append, Row]]) -> None:
        """Scores each row's first token, while its lane does not hold it."""
        started = time.perf_counter()
        for append, row in scored:
            if row.start:
                self._score(append, row.token_ids[:1], self._verifier.logits([row.lane]))
        self.seconds += time.perf_counter() - started

    def after(self, scored: Sequence[tuple[Append, Row]]) -> None:
        """Scores the others, once the rows are forwarded."""
        started = time.perf_counter()
        for append, row in scored:
            if len(row.token_ids) > 1:
                try:
                    logits = self._verifier.scored_logits([row.lane])
                except Exception:  # of a backend: the row is in the lane, and only what it is worth is not known
                    _log.exception("scoring failed", session_id=append.session_id)
                    append.failure = Internal("there are no logits beside an appended token")
                else:
                    self._score(append, row.token_ids[1:], logits[:-1])  # the last ones are for what comes next
        self.seconds += time.perf_counter() - started

    def _score(self, append: Append, token_ids: Sequence[int], logits: NDArray[np.float32]) -> None:
        self.num_tokens += len(token_ids)
        for token_id, of_token in zip(token_ids, logits, strict=True):
            if not np.isfinite(of_token.max()):
                _log.error("scoring failed", session_id=append.session_id)
                append.failure = Internal("the logits beside an appended token are not finite")
                return
            append.details.append(token_detail(of_token, token_id, append.num_top_logprobs or 0))
