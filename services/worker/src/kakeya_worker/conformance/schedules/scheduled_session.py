"""One session of a schedule: what the engine does with it, held against the exact reference."""

import time
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from kakeya_shared.errors.tree import EmptyHistory, HistoryFull, KakeyaError, OperationStopped, SessionClosed
from kakeya_worker.conformance.exact_reference import ReferenceSession
from kakeya_worker.conformance.schedules.schedule import AppendTokens, Cancel, GenerateTokens
from kakeya_worker.conformance.schedules.watched_verifier import WatchedVerifier
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import LaneState
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.lanes.results import AppendResult, Finish, GenerateResult
from kakeya_worker.engine.sampling.sampling import TokenDetail, choose, token_detail

TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.0005


@dataclass
class ScheduledSession:
    """An open session.

    Attributes:
        reference: fed with what the engine says is committed, and nothing else.
        delivered: the tokens of the running Generate, as the engine hands them out.
    """

    engine: Engine
    verifier: WatchedVerifier
    session_id: str
    epoch: int
    sink: int
    window: int
    refuses_overflow: bool
    reference: ReferenceSession
    operation: Append | Generate | None = None
    is_cancelled: bool = False
    delivered: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Of the history, without what runs."""
        return len(self.reference.token_ids)

    @property
    def capacity(self) -> int:
        return self.sink + self.window

    def fork(self, session_id: str, epoch: int) -> "ScheduledSession":
        """A session that the engine has made a copy of this one; nothing runs on it."""
        fork = replace(self, session_id=session_id, epoch=epoch, reference=self.reference.fork(), delivered=[])
        fork._check_lane(self.engine.stop_operation(session_id, epoch).result(TIMEOUT_SECONDS).state)
        return fork

    def append(self, action: AppendTokens) -> None:
        """Submits it and returns at once; one that does not fit is refused."""
        is_refused = self.refuses_overflow and self.length + len(action.token_ids) > self.capacity
        append = Append(self.session_id, self.epoch, self.length, action.token_ids, action.num_top_logprobs)
        self._submit(append, HistoryFull if is_refused else None)

    def generate(self, action: GenerateTokens) -> None:
        """Submits it and returns at once; one from nothing is refused."""
        self.delivered = []
        generate = Generate(
            self.session_id,
            self.epoch,
            self.length,
            action.max_tokens,
            action.eos_token_ids,
            action.sampling,
            lambda token_id, _: self.delivered.append(token_id),
            stop_token_sequences=action.stop_token_sequences,
            min_tokens=action.min_tokens,
            ignores_eos=action.ignores_eos,
        )
        self._submit(generate, None if self.length else EmptyHistory)

    def cancel(self, action: Cancel) -> None:
        """Cancels what runs, if anything does."""
        if self.operation is None:
            return
        self._wait_for(action.after)
        self.is_cancelled = True
        if action.by_command:
            self.engine.stop_operation(self.session_id, self.epoch).result(TIMEOUT_SECONDS)
        else:
            self.engine.cancel(self.operation)

    def settle(self) -> None:
        """Waits for what runs, and checks what it did and left behind."""
        if self.operation is None:
            return
        result = _result(self.operation, *[OperationStopped] * self.is_cancelled)
        state = self.engine.stop_operation(self.session_id, self.epoch).result(TIMEOUT_SECONDS).state
        if result is not None:
            self._same("the lane in the answer", result.lane, state)
            num_evicted = self._num_evicted(state.history_length) - self._num_evicted(self.length)
            self._same("evicted tokens", result.num_evicted, num_evicted)
        self._follow(state.history_length, result)
        self._check_lane(state)

    def close(self, after: int = 0) -> None:
        """Closes it, whatever runs, and checks what was committed by then."""
        self._wait_for(after)
        length = self.engine.close(self.session_id, self.epoch).result(TIMEOUT_SECONDS)
        if self.operation is None:
            self._same("final history length", length, self.length)
        else:
            self._follow(length, _result(self.operation, SessionClosed, *[OperationStopped] * self.is_cancelled))

    def _wait_for(self, num_committed: int) -> None:
        """Until the operation has committed so many tokens, or has ended."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.operation is not None and not self.operation.future.done():
            self._same("whether the engine goes on", time.monotonic() < deadline, True)
            reports = self.engine.lanes.reports()
            length = next(report.state.history_length for report in reports if report.session_id == self.session_id)
            if length >= self.length + num_committed:
                break
            time.sleep(_POLL_SECONDS)

    def _submit(self, operation: Append | Generate, refusal: type[KakeyaError] | None) -> None:
        self.engine.submit(operation)
        if refusal is None:
            self.operation, self.is_cancelled = operation, False
            return
        with pytest.raises(refusal):
            operation.future.result(TIMEOUT_SECONDS)

    def _follow(self, length: int, result: AppendResult | GenerateResult | None) -> None:
        """Feeds the reference with what the operation committed, all of it where there is a result."""
        operation, self.operation = self.operation, None
        num_committed = length - self.length
        if isinstance(operation, Append):
            num_demanded = len(operation.token_ids)
            self._same("committed tokens of an append", num_committed, min(num_committed, num_demanded))
            if result is not None:
                self._same("committed tokens of a whole append", num_committed, num_demanded)
            details = self._extend(operation, num_committed)
            if isinstance(result, AppendResult):
                self._same("details of appended tokens", result.details, details)
        elif isinstance(operation, Generate):
            self._same("delivered and committed tokens", len(self.delivered), num_committed)
            finish = self._regenerate(operation)
            if isinstance(result, GenerateResult):
                self._same("finish", result.finish, finish)

    def _extend(self, append: Append, num_tokens: int) -> tuple[TokenDetail, ...]:
        """Feeds the reference with the first tokens of an append; what it makes of each, where that is asked for."""
        details: list[TokenDetail] = []
        for token_id in append.token_ids[:num_tokens]:
            if append.num_top_logprobs is not None and self.length:
                details.append(token_detail(self.reference.logits(), token_id, append.num_top_logprobs))
            self.reference.extend([token_id])
        return tuple(details)

    def _regenerate(self, generate: Generate) -> Finish | None:
        """Chooses as many tokens from the reference's logits; they are those that were delivered."""
        finish: Finish | None = Finish.TRUNCATED if self._is_full else None
        counts: Counter[int] = Counter()
        for number, delivered in enumerate(self.delivered, start=1):
            self._same("finish before the last token", finish, None)
            is_masked = generate.ignores_eos or number <= generate.min_tokens
            masked = generate.eos_token_ids if is_masked else ()
            token_id = choose(self.reference.logits(), generate.sampling, self.length, counts, masked)
            self._same("delivered token", delivered, token_id)
            counts[token_id] += 1
            self.reference.extend([token_id])
            finish = self._finish(generate, token_id, number)
        return finish

    def _finish(self, generate: Generate, token_id: int, num_generated: int) -> Finish | None:
        if token_id in generate.eos_token_ids:
            return Finish.EOS
        is_looked_for = num_generated >= generate.min_tokens
        if is_looked_for and (token_id,) in generate.stop_token_sequences:  # a schedule's are one token long
            return Finish.STOP_SEQUENCE
        if num_generated == generate.max_tokens:
            return Finish.MAX_TOKENS
        return Finish.TRUNCATED if self._is_full else None

    @property
    def _is_full(self) -> bool:
        return self.refuses_overflow and self.length == self.capacity

    def _num_evicted(self, length: int) -> int:
        return max(0, length - self.capacity)

    def _check_lane(self, state: LaneState) -> None:
        num_kept = min(self.length, self.capacity)
        self._same("history length", state.history_length, self.length)
        self._same("live bytes", state.kv_live_bytes, num_kept * self.verifier.facts.kv_bytes_per_token)
        self._same("retained tokens", sum(map(len, state.retained)), num_kept)
        if self.length:
            lane = self.engine.lanes.find(self.session_id, self.epoch).lane.index
            found, expected = self.verifier.last_logits[lane], self.reference.logits()
            num_different = int(np.count_nonzero(found.view(np.uint32) != expected.view(np.uint32)))
            self._same("logits of other bits", num_different, 0)

    def _same(self, what: str, found: object, expected: object) -> None:
        """Raises AssertionError; pytest explains none outside a test's own file."""
        if found != expected:
            raise AssertionError(f"{self.session_id} at {self.length}: {what}: {found}, must be {expected}")


def _result(operation: Append | Generate, *expected: type[KakeyaError]) -> AppendResult | GenerateResult | None:
    """None where it ended in one of these ways."""
    try:
        return operation.future.result(TIMEOUT_SECONDS)
    except expected:
        return None
