"""A step's forward pass: the next tokens of those who generate are chosen and delivered, and all rows computed."""

from typing import NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from kakeya_shared.errors.tree import Internal
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.sampling.sampling import TokenDetail, choose, token_detail
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.engine.steps.scheduler import Step

_log = structlog.get_logger()


class Forwarded(NamedTuple):
    """The rows to commit, and the operations that have none: their sampling failed, or the pass did."""

    rows: list[tuple[Append | Generate, Row]]
    failures: dict[Append | Generate, Internal]


def forward(step: Step, verifier: Verifier) -> Forwarded:
    """Runs a step; whatever fails is among what it returns.

    K and V beyond the committed lengths are invisible, so a pass that failed needs no undo.
    """
    done = Forwarded([], {})
    try:
        _sample(step.generates, verifier, done)
        done.rows.extend(
            (append, append.lane.row(append.next_tokens(num_tokens))) for append, num_tokens in step.appends
        )
        if done.rows:
            verifier.forward([row for _, row in done.rows])
        return done
    except Exception:  # of a backend, whatever it is: the engine goes on, and these operations are told
        scheduled: list[Append | Generate] = [*step.generates, *(append for append, _ in step.appends)]
        _log.exception("a step failed", session_ids=[operation.session_id for operation in scheduled])
        failed = dict.fromkeys(scheduled, Internal("the forward pass failed"))
        return Forwarded([], failed | done.failures)


def _sample(generates: list[Generate], verifier: Verifier, done: Forwarded) -> None:
    """Chooses the next token of each generate, and delivers it: it is forwarded in this step."""
    if not generates:
        return
    logits = verifier.logits([generate.lane.index for generate in generates])  # [generates, vocab]
    for generate, row_logits in zip(generates, logits, strict=True):
        try:
            token_id, detail = _next_token(generate, row_logits)
        except FloatingPointError as error:
            _log.exception("sampling failed", session_id=generate.session_id)
            done.failures[generate] = Internal(str(error))  # says an index, no token
            continue
        generate.deliver(token_id, detail)
        done.rows.append((generate, generate.lane.row((token_id,))))


def _next_token(generate: Generate, logits: NDArray[np.float32]) -> tuple[int, TokenDetail | None]:
    """Chosen from the logits [vocab]; raises FloatingPointError."""
    token_id = choose(logits, generate.sampling, generate.lane.length, generate.counts)
    num_top = generate.num_top_logprobs
    return token_id, None if num_top is None else token_detail(logits, token_id, num_top)
