"""Operations: a running Append or Generate of one session, as the engine sees it."""

import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kakeya_shared.errors.tree import EmptyHistory, HistoryFull, KakeyaError
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.lanes.results import AppendResult, Finish, GenerateResult
from kakeya_worker.engine.sampling.gumbel import Draw, draw
from kakeya_worker.engine.sampling.sampling import Sampling, TokenDetail, choose, token_detail
from kakeya_worker.engine.speculation.drafter import Drafter
from kakeya_worker.grammars.constraint import Constraint
from kakeya_worker.grammars.reasoning import ReasonedConstraint

MAX_UNREAD_TOKENS = 64
MAX_PAUSE_SECONDS = 60.0

Choice = tuple[int, TokenDetail | None]
"""A token that was chosen, and what is asked for of it."""


@dataclass(eq=False)
class Operation:
    """Common to both kinds. Made by a caller, who keeps it to cancel it; run by the engine.

    The future resolves when the engine has let go of the lane, and cannot be cancelled itself.

    Attributes:
        epoch: of the caller's lease.
        history_length: what the caller has on record, as `history_digest`, or None where that is not known; see
            `Lane.check_history`.
        number: in the order of the session's operations; a lower one than the lane has seen is refused, but for 0.
        lane: set when the engine takes the operation up.
        tenant: owner of the session, set likewise.
        stepped: when its first step began, on the clock of `time.perf_counter`; None: it has had none.
        num_steps: that it has had a part in.
    """

    session_id: str
    epoch: int
    history_length: int
    number: int = field(default=0, kw_only=True)
    history_digest: int | None = field(default=None, kw_only=True)
    lane: Lane = field(init=False)
    tenant: str = field(init=False)
    num_evicted_before: int = field(init=False)
    started: float = field(init=False, default_factory=time.perf_counter)
    stepped: float | None = field(init=False, default=None)
    num_steps: int = field(init=False, default=0)
    ended: float | None = field(init=False, default=None)
    is_cancelled: bool = field(init=False, default=False)

    def begin(self, lane: Lane, tenant: str) -> None:
        self.lane = lane
        self.tenant = tenant
        self.num_evicted_before = lane.num_evicted

    def steps(self, started: float) -> None:
        """It has a part in a step that began then."""
        if self.stepped is None:
            self.stepped = started
        self.num_steps += 1

    @property
    def num_evicted(self) -> int:
        """Tokens that left the window since the operation began."""
        return self.lane.num_evicted - self.num_evicted_before

    @property
    def seconds(self) -> float:
        """So far, or until it ended."""
        return (self.ended or time.perf_counter()) - self.started


@dataclass(eq=False)
class Append(Operation):
    """Prefills tokens, a chunk a step.

    Attributes:
        num_top_logprobs: of how many likeliest ids the log-probabilities are wanted, beside each token's own; None for
            no log-probabilities.
        details: what was asked for, of the tokens so far; the first of a history has none.
        failure: why they cannot be told; it ends with that, and what is prefilled stays.
    """

    token_ids: tuple[int, ...]
    num_top_logprobs: int | None = None
    future: "Future[AppendResult]" = field(init=False, default_factory=Future)
    details: list[TokenDetail] = field(init=False, default_factory=list)
    failure: KakeyaError | None = field(init=False, default=None)
    num_done: int = field(init=False, default=0)

    def check(self, lane: Lane) -> None:
        """Raises HistoryFull where the tokens do not fit a lane that refuses to forget."""
        if lane.room is not None and len(self.token_ids) > lane.room:
            raise HistoryFull(
                f"{len(self.token_ids)} tokens do not fit: the session keeps {lane.retention.capacity} and holds "
                f"{lane.length}",
                metadata={"room": str(lane.room)},
            )

    @property
    def is_scored(self) -> bool:
        return self.num_top_logprobs is not None

    def next_tokens(self, limit: int) -> tuple[int, ...]:
        return self.token_ids[self.num_done : self.num_done + limit]

    @property
    def is_complete(self) -> bool:
        return self.num_done == len(self.token_ids)


@dataclass(eq=False)
class Generate(Operation):
    """Generates a token a step, or several where its session's drafts are right; pauses while its reader is
    `MAX_UNREAD_TOKENS` behind.

    Of the tokens before, it remembers no more than the longest stop sequence needs, and with penalties how often each
    id came.

    Attributes:
        on_token: called on the engine's thread with each token and what `num_top_logprobs` asks for, in the step that
            is about to commit it. Should that step fail, the operation fails after a token that is not in the history.
        hand_over: called on that thread once a step's tokens are there, once for all that have the same.
        num_top_logprobs: of how many likeliest ids the log-probabilities are wanted, beside the choice's own; None
            for no log-probabilities.
        stop_token_sequences: it ends once its tokens end with one of these.
        acknowledges: its reader says by and by how many tokens it has passed on; what was handed out does not count.
        previous_token_ids: what it has produced before, elsewhere; they count as its own.
        min_tokens: until it has produced so many EOS is not chosen, and stop sequences are not looked for.
        ignores_eos: EOS is never chosen.
        constraint: which tokens may come at all; behind those that it has produced before.
        closes: the session is closed once it has come to its end.
        num_read: how many of its first tokens were read; changed by one thread.
        journaled_length: history length up to which its reader has its tokens for good; changed by that thread.
        counts: how often it has produced each id; kept where there are penalties.
        first_token: when the first of its own tokens was there, on the clock of `time.perf_counter`.
        drafter: of its session, set when it begins; None: nothing is drafted.
        draw_from: how its tokens are drawn, set when it begins; see `choose`.
        next_choice: its next token, where that is chosen and not delivered yet.
        num_drafted, num_accepted: drafts that were checked, and those that were right.
    """

    max_tokens: int
    eos_token_ids: frozenset[int]
    sampling: Sampling
    on_token: Callable[[int, TokenDetail | None], None]
    hand_over: Callable[[], None] | None = None
    num_top_logprobs: int | None = None
    stop_token_sequences: tuple[tuple[int, ...], ...] = ()
    acknowledges: bool = False
    previous_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignores_eos: bool = False
    constraint: Constraint | ReasonedConstraint | None = None
    closes: bool = False
    future: "Future[GenerateResult]" = field(init=False, default_factory=Future)
    num_generated: int = field(init=False, default=0)
    num_read: int = field(init=False, default=0)
    journaled_length: int = field(init=False, default=0)
    counts: Counter[int] = field(init=False, default_factory=Counter)
    paused_since: float | None = field(init=False, default=None)
    first_token: float | None = field(init=False, default=None)
    drafter: Drafter | None = field(init=False, default=None)
    draw_from: Draw = field(init=False, default=draw)
    next_choice: Choice | None = field(init=False, default=None)
    num_drafted: int = field(init=False, default=0)
    num_accepted: int = field(init=False, default=0)
    _last_tokens: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        self._last_tokens = deque(self.previous_token_ids, max([1, *map(len, self.stop_token_sequences)]))
        self.num_generated = self.num_read = len(self.previous_token_ids)
        if self.sampling.has_penalties:
            self.counts.update(self.previous_token_ids)

    def check(self, lane: Lane) -> None:
        """Raises EmptyHistory where there is no logit to choose from."""
        if lane.length == 0:
            raise EmptyHistory("there is nothing to generate from; append tokens first")

    @property
    def num_unread(self) -> int:
        return self.num_generated - self.num_read

    @property
    def is_paused(self) -> bool:
        return self.num_unread >= MAX_UNREAD_TOKENS

    @property
    def masked_token_ids(self) -> frozenset[int]:
        """Those that must not be its next token."""
        return self.eos_token_ids if self.ignores_eos or self.num_generated < self.min_tokens else frozenset()

    @property
    def finish(self) -> Finish | None:
        """Why it is complete; None while it is not."""
        return self.own_finish or (Finish.TRUNCATED if self.lane.room == 0 else None)

    @property
    def own_finish(self) -> Finish | None:
        """Likewise, by its tokens alone, those that are not committed yet among them."""
        last_tokens = tuple(self._last_tokens)
        if last_tokens and last_tokens[-1] in self.eos_token_ids:
            return Finish.EOS
        if self.num_generated >= self.min_tokens and self._ends_with_stop_sequence(last_tokens):
            return Finish.STOP_SEQUENCE
        if self.num_generated == self.max_tokens:
            return Finish.MAX_TOKENS
        return None

    def _ends_with_stop_sequence(self, last_tokens: tuple[int, ...]) -> bool:
        return any(last_tokens[-len(sequence) :] == sequence for sequence in self.stop_token_sequences)

    def acknowledge(self, num_tokens: int, journaled_length: int) -> bool:
        """See `Engine.acknowledge`; called by one thread. Whether it may have been paused until now."""
        # One that comes late may speak of tokens that were taken back since.
        self.journaled_length = max(self.journaled_length, min(journaled_length, self.lane.length))
        num_read = self.num_read
        self.num_read = max(num_read, min(num_tokens, self.num_generated))
        # By the count before, and looked at after it: a row that the engine pauses at this moment is not missed.
        return self.num_generated - num_read >= MAX_UNREAD_TOKENS

    def count_drafts(self, num_drafted: int, num_accepted: int) -> None:
        """So many were checked, and right."""
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted
        if self.drafter is not None:
            self.drafter.acceptance.add(num_drafted, num_accepted)

    def choice(self, logits: NDArray[np.float32], history_index: int) -> Choice:
        """Its token at that index, by all that it is held to, from the logits [vocab] of the one before.

        Raises FloatingPointError: they are not finite; InvalidField: the grammar is too much.
        """
        masked, allowed = self.masked_token_ids, None
        if self.constraint is not None:
            allows = self.constraint.allowed()
            allowed = allows.token_ids
            if allows.ends_only:  # it may be before `min_tokens`
                masked = frozenset()
        token_id = choose(logits, self.sampling, history_index, self.counts, masked, allowed, self.draw_from)
        num_top = self.num_top_logprobs
        return token_id, None if num_top is None else token_detail(logits, token_id, num_top)

    def deliver(self, token_id: int, detail: TokenDetail | None) -> None:
        """Its next token."""
        self.next_choice = None
        if self.first_token is None:
            self.first_token = time.perf_counter()
        self.num_generated += 1
        self._last_tokens.append(token_id)
        if self.sampling.has_penalties:
            self.counts[token_id] += 1
        if self.constraint is not None and self.num_generated < self.max_tokens and token_id not in self.eos_token_ids:
            self.constraint.advance(token_id)
        self.on_token(token_id, detail)

    def paused_too_long(self) -> bool:
        """Whether the reader has been behind for over MAX_PAUSE_SECONDS."""
        now = time.perf_counter()
        if not self.is_paused:
            self.paused_since = None
        elif self.paused_since is None:
            self.paused_since = now
        return self.paused_since is not None and now - self.paused_since > MAX_PAUSE_SECONDS
