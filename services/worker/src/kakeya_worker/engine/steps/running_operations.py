"""The operations that run: begun on their lanes, stepped together, and ended, however they end.

All of it runs on the engine's thread.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from kakeya_shared.errors.tree import (
    Internal,
    InvalidField,
    InvariantViolated,
    KakeyaError,
    OperationRunning,
    OperationStopped,
)
from kakeya_worker.engine.lanes.lane_state import Stopped
from kakeya_worker.engine.lanes.lane_table import LaneTable, Occupant
from kakeya_worker.engine.lanes.operation import MAX_PAUSE_SECONDS, Append, Choice, Generate
from kakeya_worker.engine.lanes.results import AppendResult, Finish, GenerateResult
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier, draw_of
from kakeya_worker.engine.speculation.proposers import Proposers
from kakeya_worker.engine.steps.drafting import NOTHING_DRAFTED, Drafted, draft
from kakeya_worker.engine.steps.scheduler import Scheduler, Step
from kakeya_worker.engine.steps.scoring import Scoring
from kakeya_worker.engine.steps.verification import verify
from kakeya_worker.metrics import WorkerMetrics

_log = structlog.get_logger()


class RunningOperations:
    """Each holds its session's lane from `begin` until its future is told what became of it.

    Args:
        scheduler: knows them all, and says who is in the next step.
    """

    def __init__(
        self,
        lanes: LaneTable,
        scheduler: Scheduler,
        verifier: Verifier,
        proposers: Proposers,
        metrics: WorkerMetrics,
    ) -> None:
        self._lanes = lanes
        self._scheduler = scheduler
        self._verifier = verifier
        self._draw_from = draw_of(verifier)
        self._proposers = proposers
        self._metrics = metrics

    def begin(self, operation: Append | Generate, refuse_if_ending: Callable[[], None]) -> None:
        """Takes it up, unless its lane is not what the caller believes; raises Postponed while the lane is copied.

        Args:
            refuse_if_ending: raises Draining where nothing begins any more.
        """
        try:
            refuse_if_ending()
            occupant = self._lanes.find_for(operation.session_id, operation.epoch, operation.number)
            occupant.wait_for_readings()
            if occupant.operation is not None:
                raise OperationRunning("another operation is running on the session")
            occupant.lane.check_history(operation.history_length, operation.history_digest)
            operation.check(occupant.lane)
        except KakeyaError as error:
            operation.future.set_exception(error)
            return
        occupant.generated.forget(occupant.lane.length)  # the caller has all of it on record
        operation.begin(occupant.lane, occupant.tenant)
        if isinstance(operation, Generate):
            operation.drafter = occupant.drafter
            operation.draw_from = self._draw_from
        occupant.operation = operation
        self._scheduler.add(operation)
        self._complete_if_done(occupant, operation)  # nothing to prefill, or no room to generate

    def step(self) -> None:
        """One step of those whose turn it is: schedule, forward, commit."""
        started = time.perf_counter()
        step = self._scheduler.next_step()
        for operation in step.operations:
            operation.steps(started)
        rows, failures, scoring, num_drafts, drafting_seconds = _forward(step, self._verifier, self._draft)
        for operation, error in failures.items():
            self._fail(operation, error)
        for operation, row in rows:
            self._commit(operation, row)
        seconds = time.perf_counter() - started
        self._scheduler.account(
            seconds,
            is_whole=not failures,
            scoring=scoring,
            num_drafts=num_drafts,
            drafting_seconds=drafting_seconds,
        )
        if self._metrics.meters.is_on:
            num_tokens = sum(len(row.token_ids) for _, row in rows)
            num_generated = sum(len(row.token_ids) for operation, row in rows if isinstance(operation, Generate))
            self._metrics.count_step(seconds, num_generated, num_tokens - num_generated, len(rows), len(failures))
            num_accepted = sum(len(row.token_ids) - 1 for operation, row in rows if operation in num_drafts)
            self._metrics.count_drafts(sum(num_drafts.values()), num_accepted, sum(drafting_seconds.values()))

    def end_cancelled(self) -> None:
        """Ends those whose callers have gone, and those whose tokens nobody reads."""
        for operation in self._scheduler.operations:
            if operation.is_cancelled:
                self._fail(operation, OperationStopped("the operation was stopped"))
            elif isinstance(operation, Generate) and operation.paused_too_long():
                message = f"nobody read the tokens for {MAX_PAUSE_SECONDS:g} s"
                self._fail(operation, OperationStopped(message, metadata={"cause": "unread"}))

    def end_all(self, error: KakeyaError) -> None:
        """Ends whatever runs."""
        for operation in self._scheduler.operations:
            self._fail(operation, error)

    def end(self, occupant: Occupant, error: KakeyaError) -> None:
        """Ends what runs on a session, if anything does."""
        if occupant.operation is not None:
            self._fail(occupant.operation, error)

    def stop(self, occupant: Occupant, journaled_length: int | None) -> Stopped:
        """See `Engine.stop_operation`; raises Postponed while commands wait that came before."""
        occupant.wait_for_others()  # what is to be stopped may be among them
        self.end(occupant, OperationStopped("the operation was stopped"))
        length = occupant.lane.length
        start = length if journaled_length is None else journaled_length
        return Stopped(self._lanes.state(occupant), occupant.generated.since(start, length))

    def _draft(self, chosen: Mapping[Generate, int]) -> Drafted:
        if all(generate.drafter is None for generate in chosen):
            return NOTHING_DRAFTED
        return draft(chosen, self._scheduler.depths, self._proposers)

    def _commit(self, operation: Append | Generate, row: Row) -> None:
        occupant = self._lanes.find(operation.session_id, operation.epoch)
        try:
            operation.lane.commit(row)
        except InvariantViolated as error:
            self._metrics.invariant_violations.labels(error.metadata.get("invariant", "inv1")).inc()
            _log.error("invariant violated", session_id=occupant.session_id, problem=error.message)
            self._fail(operation, error)
            self._lanes.free(occupant)
            return
        self._lanes.publish(occupant)
        if isinstance(operation, Append):
            operation.num_done += len(row.token_ids)
        else:
            for token_id in row.token_ids:
                occupant.generated.add(token_id, operation.journaled_length)
        if occupant.drafter is not None:
            self._proposers.extend(occupant.drafter, row.token_ids)
        self._complete_if_done(occupant, operation)

    def _complete_if_done(self, occupant: Occupant, operation: Append | Generate) -> None:
        if isinstance(operation, Append):
            if operation.failure is not None:
                self._fail(operation, operation.failure)
            elif operation.is_complete:
                self._complete_append(occupant, operation)
        elif (finish := operation.finish) is not None:
            self._complete_generate(occupant, operation, finish)

    def _complete_append(self, occupant: Occupant, append: Append) -> None:
        state = self._lanes.state(occupant)
        self._release(append)
        if append.token_ids:
            self._metrics.prefill_seconds.observe(append.seconds / len(append.token_ids))
        append.future.set_result(AppendResult(state, append.seconds, append.num_evicted, tuple(append.details)))

    def _complete_generate(self, occupant: Occupant, generate: Generate, finish: Finish) -> None:
        state, prefill_seconds = self._lanes.state(occupant), generate.lane.prefill_seconds
        self._release(generate)
        if generate.closes:
            self._lanes.free(occupant)
        generate.future.set_result(
            GenerateResult(
                state,
                finish=finish,
                num_generated=generate.num_generated,
                prefill_seconds=prefill_seconds,
                total_seconds=generate.seconds,
                num_evicted=generate.num_evicted,
                num_drafted=generate.num_drafted,
                num_accepted=generate.num_accepted,
                is_closed=generate.closes,
            )
        )

    def _fail(self, operation: Append | Generate, error: KakeyaError) -> None:
        self._release(operation)
        operation.future.set_exception(error)

    def _release(self, operation: Append | Generate) -> None:
        self._scheduler.remove(operation)
        operation.ended = time.perf_counter()
        self._metrics.forgotten_tokens.inc(operation.num_evicted)
        self._lanes.find(operation.session_id, operation.epoch).operation = None
        # The appends of a turn end with its Generate, however either of them ended.
        if isinstance(operation, Generate):
            operation.lane.prefill_seconds = 0.0
        else:
            operation.lane.prefill_seconds += operation.seconds


_Draft = Callable[[Mapping[Generate, int]], Drafted]
"""Behind the token that was chosen for each generate."""


class _Forwarded(NamedTuple):
    """The rows to commit, and the operations that have none: their sampling failed, or the pass did.

    Attributes:
        num_drafts: by generate, those that were computed.
        drafting_seconds: see `Drafted`.
    """

    rows: list[tuple[Append | Generate, Row]]
    failures: dict[Append | Generate, KakeyaError]
    scoring: Scoring
    num_drafts: dict[Generate, int]
    drafting_seconds: dict[str, float]


def _forward(step: Step, verifier: Verifier, draft_behind: _Draft) -> _Forwarded:
    """Runs a step; whatever fails is among what it returns.

    K and V beyond the committed lengths are invisible, so neither a pass that failed nor a wrong draft needs an undo.
    """
    done = _Forwarded([], {}, Scoring(verifier), {}, {})
    try:
        choices = _choose(step.generates, verifier, done.failures)
        for generate, choice in choices.items():
            generate.deliver(*choice)  # it is forwarded in this step
        _hand_over(choices)
        chosen = {generate: token_id for generate, (token_id, _) in choices.items()}
        drafts, seconds = draft_behind(chosen)
        done.drafting_seconds.update(seconds)
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
        _hand_over(drafted)
        done.rows.extend((generate, right.get(generate, row)) for generate, row in rows)
        done.rows.extend(prefills)
        return done
    except Exception:  # of a backend, whatever it is: the engine goes on, and these operations are told
        _log.exception("a step failed", session_ids=[operation.session_id for operation in step.operations])
        failure: KakeyaError = Internal("the forward pass failed")
        failures = dict.fromkeys(step.operations, failure) | done.failures
        return done._replace(rows=[], failures=failures, num_drafts={})


def _hand_over(generates: Iterable[Generate]) -> None:
    """Their tokens of this step were delivered."""
    for hand_over in {generate.hand_over for generate in generates}:
        if hand_over is not None:
            hand_over()


def _choose(
    generates: Sequence[Generate], verifier: Verifier, failures: dict[Append | Generate, KakeyaError]
) -> dict[Generate, Choice]:
    """The next token of each, where no step before has chosen it."""
    undecided = [generate for generate in generates if generate.next_choice is None]
    # [undecided, vocab]
    logits = verifier.logits([generate.lane.index for generate in undecided]) if undecided else ()
    for generate, row_logits in zip(undecided, logits, strict=True):
        try:
            generate.next_choice = generate.choice(row_logits, generate.lane.length)
        except FloatingPointError as error:
            _log.exception("sampling failed", session_id=generate.session_id)
            failures[generate] = Internal(str(error))  # says an index, no token
        except InvalidField as error:  # a grammar that asks too much, which shows only on the way
            failures[generate] = error
    return {each: choice for each in generates if (choice := each.next_choice) is not None}
