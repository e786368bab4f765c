"""What a model thinks before it answers: the grammar begins behind it, and it may have a bound."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.grammars.allowed import FREE, Allowed


@dataclass(frozen=True)
class Reasoning:
    """See `kakeya.v1.Reasoning`.

    Attributes:
        end_token_ids: it ends with these, in this order.
        begin_token_ids: an answer that does not begin with these has none; empty: it begins within it.
        max_tokens: of the Generate, after which nothing but its end may come; 0: no bound.
    """

    end_token_ids: tuple[int, ...]
    begin_token_ids: tuple[int, ...] = ()
    max_tokens: int = 0


class Thought:
    """Where in its thought an answer is: a function of the tokens of its Generate."""

    def __init__(self, reasoning: Reasoning) -> None:
        self.reasoning = reasoning
        self._num_tokens = 0
        self._latest: deque[int] = deque(maxlen=len(reasoning.end_token_ids))
        self.is_over = False

    @property
    def may_begin(self) -> bool:
        """Whether the next token says if there is any."""
        return not self.is_over and not self._num_tokens and bool(self.reasoning.begin_token_ids)

    @property
    def forced(self) -> int | None:
        """The only token that may come; None: others may."""
        begin, end = self.reasoning.begin_token_ids, self.reasoning.end_token_ids
        if self.is_over or self.may_begin:
            return None
        if self._num_tokens < len(begin):
            return begin[self._num_tokens]
        if not 0 < self.reasoning.max_tokens <= self._num_tokens:
            return None
        return end[next(n for n in range(len(end) - 1, -1, -1) if self._ends_with(end[:n]))]

    def add(self, token_id: int) -> bool:
        """The next token; whether it belongs to the thought."""
        if self.may_begin and token_id != self.reasoning.begin_token_ids[0]:
            self.is_over = True
        if self.is_over:
            return False
        self._num_tokens += 1
        if self._num_tokens > len(self.reasoning.begin_token_ids):
            self._latest.append(token_id)
            self.is_over = self._ends_with(self.reasoning.end_token_ids)
        return True

    def _ends_with(self, token_ids: tuple[int, ...]) -> bool:
        latest = tuple(self._latest)
        return latest[len(latest) - len(token_ids) :] == token_ids


def replayed(reasoning: Reasoning, token_ids: Iterable[int]) -> tuple[Thought, list[int]]:
    """How far a thought has come, and the tokens of its answer. Raises InvalidField: they cannot have come."""
    thought, of_answer = Thought(reasoning), []
    for token_id in token_ids:
        if (forced := thought.forced) is not None and token_id != forced:
            raise InvalidField("reasoning: the tokens so far are other ones", metadata={"field": "reasoning"})
        if not thought.add(token_id):
            of_answer.append(token_id)
    return thought, of_answer


class _Answer(Protocol):
    """What the answer behind a thought is held to; `kakeya_worker.grammars.constraint.Constraint`."""

    @property
    def is_ready(self) -> bool: ...

    def wait(self, timeout_seconds: float) -> None: ...

    def allowed(self) -> Allowed: ...

    def advance(self, token_id: int) -> None: ...

    def foresee(self, token_ids: Sequence[int]) -> None: ...


class ReasonedConstraint:
    """As a `Constraint`, of an answer that thinks first.

    Args:
        thought: as far as it has come.
        answer: what comes behind it is held to this, as far as it has come; None: to nothing.
        eos_token_ids: do not come within a thought whose answer is held to something.
        vocab_size: of the model.
    """

    def __init__(
        self, thought: Thought, answer: _Answer | None, eos_token_ids: Collection[int], vocab_size: int
    ) -> None:
        self._thought = thought
        self._answer = answer
        self._vocab_size = vocab_size
        self._within = FREE
        if answer is not None:
            token_ids = np.ones(vocab_size, np.bool_)
            token_ids[[token_id for token_id in eos_token_ids if token_id < vocab_size]] = False
            self._within = Allowed(token_ids)

    @property
    def is_ready(self) -> bool:
        """Whether `allowed` need not wait."""
        return self._waits_for is None or self._waits_for.is_ready

    def wait(self, timeout_seconds: float) -> None:
        """Until it is ready, or so long."""
        if self._waits_for is not None:
            self._waits_for.wait(timeout_seconds)

    def allowed(self) -> Allowed:
        """Raises InvalidField."""
        thought = self._thought
        if (forced := thought.forced) is not None:
            return self._only(forced)
        if not thought.is_over and not thought.may_begin:
            return self._within
        allowed = FREE if self._answer is None else self._answer.allowed()
        if not thought.may_begin or allowed.token_ids is None:
            return allowed
        token_ids = allowed.token_ids.copy()
        token_ids[thought.reasoning.begin_token_ids[0]] = True
        return replace(allowed, token_ids=token_ids, ends_only=False)

    def advance(self, token_id: int) -> None:
        """A token was chosen that does not end the answer."""
        if not self._thought.add(token_id) and self._answer is not None:
            self._answer.advance(token_id)

    def foresee(self, token_ids: Sequence[int]) -> None:
        """These may be chosen next; within a thought nothing is to be found out for that."""
        if self._thought.is_over and self._answer is not None:
            self._answer.foresee(token_ids)

    @property
    def _waits_for(self) -> _Answer | None:
        return self._answer if self._thought.is_over or self._thought.may_begin else None

    def _only(self, token_id: int) -> Allowed:
        token_ids = np.zeros(self._vocab_size, np.bool_)
        token_ids[token_id] = True
        return Allowed(token_ids)
