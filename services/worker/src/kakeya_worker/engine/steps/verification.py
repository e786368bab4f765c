"""Drafts that were computed, checked: each position's token is chosen as without drafts, and a draft is right if it is
that token.

Drafts change when a token is chosen and nothing else: not from which logits, nor by what it is held to. At the first
wrong draft the choice is there all the same, and the next step begins with it; so it does behind the last draft, where
all were right.
"""

import time
from collections.abc import Collection, Mapping

import numpy as np
import structlog
from numpy.typing import NDArray

from kakeya_worker.engine.lanes.operation import Generate
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.engine.steps.masks import LATE_SECONDS

_log = structlog.get_logger()


def verify(drafted: Mapping[Generate, Row], verifier: Verifier) -> dict[Generate, Row]:
    """Delivers the drafts that are right; each generate's row up to the last of them.

    Args:
        drafted: rows of the latest step, each the token that was chosen, and the drafts behind it.
    """
    late_at = time.monotonic() + LATE_SECONDS
    right: dict[Generate, Row] = {}
    for (generate, row), logits in zip(drafted.items(), _logits(drafted.values(), verifier), strict=True):
        num_right = _deliver_right(generate, row, logits, late_at)
        right[generate] = row.first(1 + num_right)
        if right[generate] != row:
            verifier.shorten(row.lane, 1 + num_right)
        generate.count_drafts(len(row.token_ids) - 1, num_right)
    return right


def _logits(rows: Collection[Row], verifier: Verifier) -> list[NDArray[np.float32]]:
    """After each token of each row, [tokens, vocab]; none where the backend fails."""
    try:
        logits = verifier.scored_logits([row.lane for row in rows])  # [tokens of all, vocab]
    except Exception:  # of a backend: the rows are computed, and their first tokens are right whatever it is
        _log.exception("drafts were not checked")
        return [np.empty((0, 0), np.float32)] * len(rows)
    return np.split(logits, np.cumsum([len(row.token_ids) for row in rows])[:-1])


def _deliver_right(generate: Generate, row: Row, logits: NDArray[np.float32], late_at: float) -> int:
    """How many drafts are right, from the logits [tokens, vocab] after each token of the row."""
    for number, token_logits in enumerate(logits):
        if generate.own_finish is not None or not _can_choose(generate, late_at):
            return number
        try:
            choice = generate.choice(token_logits, row.start + number + 1)
            if row.token_ids[number + 1 : number + 2] != choice[:1]:
                generate.next_choice = choice
                return number
            generate.deliver(*choice)
        except Exception:  # the next step meets it again, without drafts, and tells the caller
            return number
    return 0  # there were no logits


def _can_choose(generate: Generate, late_at: float) -> bool:
    """Whether its mask is there in time, if it has one: other sessions do not wait for it."""
    if generate.constraint is None or generate.constraint.is_ready:
        return True
    generate.constraint.wait(max(0.0, late_at - time.monotonic()))
    return generate.constraint.is_ready
