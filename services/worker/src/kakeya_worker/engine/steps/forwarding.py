"""A step's forward pass: tokens chosen and delivered, drafted behind them, computed, and the drafts checked."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import structlog

from kakeya_shared.errors.tree import Internal, InvalidField, KakeyaError
from kakeya_worker.engine.lanes.operation import Append, Choice, Generate
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.engine.steps.choices import next_choice
from kakeya_worker.engine.steps.scheduler import Step
from kakeya_worker.engine.steps.scoring import Scoring
from kakeya_worker.engine.steps.verification import verify

_log = structlog.get_logger()

Draft = Callable[[Mapping[Generate, int]], dict[Generate, tuple[int, ...]]]
"""Drafts behind the token that was chosen for each generate, where there are any."""


class Forwarded(NamedTuple):
    """The rows to commit, and the operations that have none: their sampling failed, or the pass did.

    Attributes:
        num_drafts: by generate, those that were computed.
    """

    rows: list[tuple[Append | Generate, Row]]
    failures: dict[Append | Generate, KakeyaError]
    scoring: Scoring
    num_drafts: dict[Generate, int]


def forward(step: Step, verifier: Verifier, draft: Draft) -> Forwarded:
    """Runs a step; whatever fails is among what it returns.

    K and V beyond the committed lengths are invisible, so neither a pass that failed nor a wrong draft needs an undo.
    """
    done = Forwarded([], {}, Scoring(verifier), {})
    try:
        choices = _choose(step.generates, verifier, done.failures)
        for generate, choice in choices.items():
            generate.deliver(*choice)  # it is forwarded in this step
        chosen = {generate: token_id for generate, (token_id, _) in choices.items()}
        drafts = draft(chosen)
        rows = [
            (generate, generate.lane.row((token_id, *drafts.get(generate, ())), is_scored=generate in drafts))
            for generate, token_id in chosen.items()
        ]
        prefills = [
            (append, append.lane.row(append.next_tokens(num_tokens), is_scored=append.is_scored))
            for append, num_tokens in step.appends
        ]
        if scored := [(append, row) for append, row in prefills if row.is_scored]:
            done.scoring.before(scored)
        if rows or prefills:
            verifier.forward([row for _, row in (*rows, *prefills)])
        if scored:
            done.scoring.after(scored)
        drafted = {generate: row for generate, row in rows if row.is_scored}
        done.num_drafts.update((generate, len(row.token_ids) - 1) for generate, row in drafted.items())
        right = verify(drafted, verifier) if drafted else {}
        done.rows.extend((generate, right.get(generate, row)) for generate, row in rows)
        done.rows.extend(prefills)
        return done
    except Exception:  # of a backend, whatever it is: the engine goes on, and these operations are told
        _log.exception("a step failed", session_ids=[operation.session_id for operation in step.operations])
        failure: KakeyaError = Internal("the forward pass failed")
        return Forwarded([], dict.fromkeys(step.operations, failure) | done.failures, done.scoring, {})


def _choose(
    generates: Sequence[Generate], verifier: Verifier, failures: dict[Append | Generate, KakeyaError]
) -> dict[Generate, Choice]:
    """The next token of each, where no step before has chosen it."""
    undecided = [generate for generate in generates if generate.next_choice is None]
    # [undecided, vocab]
    logits = verifier.logits([generate.lane.index for generate in undecided]) if undecided else ()
    for generate, row_logits in zip(undecided, logits, strict=True):
        try:
            generate.next_choice = next_choice(generate, row_logits, generate.lane.length)
        except FloatingPointError as error:
            _log.exception("sampling failed", session_id=generate.session_id)
            failures[generate] = Internal(str(error))  # says an index, no token
        except InvalidField as error:  # a grammar that asks too much, which shows only on the way
            failures[generate] = error
    return {each: choice for each in generates if (choice := each.next_choice) is not None}
