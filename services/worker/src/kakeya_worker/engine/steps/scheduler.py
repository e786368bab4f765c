"""Which operations get how many tokens of the next step: plain numbers, no arrays.

Every running Generate gets its one token; what is left of the step's budget goes to prefills, a chunk at most
each. Both kinds take turns, so nobody waits longer than a round: tenants first, then each tenant's sessions. Where
several tenants have work, `tenant_shares` says which of them run.

A prefill's turn is worth a chunk of tokens, in as many steps as that takes: deficit round robin (Shreedhar and
Varghese 1995). Within a tenant all sessions are thus equal in tokens, those that prefill as those that generate.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import NamedTuple, TypeVar

from kakeya_worker.engine.costs.step_costs import MeasuredStep, StepCosts, StepMeasures
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.steps.drafting import NO_DRAFTS, NO_SECONDS, NOTHING_DONE, DraftsDone, depths_of
from kakeya_worker.engine.steps.masks import that_can_choose
from kakeya_worker.engine.steps.scoring import Scoring, ScoringCosts
from kakeya_worker.engine.steps.tenant_shares import Load, TenantShares

LEAST_PREFILL_PART = 0.25  # of what those who generate take themselves: prefills get on, however small the budget is
UNPLANNED_STEPS = 3  # after one in which no draft would have paid: to find that out takes time, too
_O = TypeVar("_O", Append, Generate)


@dataclass(frozen=True)
class StepBudget:
    """Who generates waits for the prefills in the step, so these get only so much time there.

    By default as much as those who generate take themselves: each kind has half of the time, and a token takes no
    more than twice what it would without them, or longer by what one prefilled token adds if that is more, whatever
    the model, the window and the machine. That holds among the tenants in the step. A step in which nobody generates
    is bounded by its tokens only: nobody in it waits for a token, though another tenant's sessions may.

    Attributes:
        tokens: the most in a forward pass.
        seconds: of a step with both kinds; None for twice what those who generate take themselves.
    """

    tokens: int
    seconds: float | None = None

    def for_prefills(self, costs: StepCosts, num_generates: int, num_visible_slots: int) -> "PrefillBudget":
        """What is left beside so many tokens, which see so many slots in all."""
        left = PrefillBudget(costs, self.tokens - num_generates)
        if num_generates:
            own_seconds = costs.seconds(num_generates, num_visible_slots)
            left_seconds = own_seconds if self.seconds is None else self.seconds - own_seconds
            left.seconds = max(left_seconds, LEAST_PREFILL_PART * own_seconds)
        return left


@dataclass
class PrefillBudget:
    """What is left for prefills in one step."""

    costs: StepCosts
    tokens: int
    seconds: float = math.inf
    is_untouched: bool = True

    def take(self, num_tokens: int, num_visible_slots: int, scoring_seconds: float = 0.0) -> int:
        """As many of a session's next tokens as fit, each seeing so many slots; of the first session one at least.

        So some prefill gets on in every step; a token that alone takes longer has its share of the time with that.

        Args:
            scoring_seconds: that a token takes beside its forward pass.
        """
        token_seconds = self.costs.added_seconds(num_visible_slots) + scoring_seconds
        num_affordable = num_tokens
        if num_tokens * token_seconds > self.seconds:
            num_affordable = max(int(self.is_untouched), math.floor(self.seconds / token_seconds))
        num_taken = min(num_tokens, self.tokens, num_affordable)
        self.tokens -= num_taken
        self.seconds = max(0.0, self.seconds - num_taken * token_seconds)
        self.is_untouched = False
        return num_taken


class Step(NamedTuple):
    """The generates that get a token, and the appends with their numbers of tokens."""

    generates: list[Generate]
    appends: list[tuple[Append, int]]

    @property
    def operations(self) -> "list[Append | Generate]":
        return [*self.generates, *(append for append, _ in self.appends)]

    @property
    def load(self) -> Load:
        return Load(len(self.generates), sum(num_tokens for _, num_tokens in self.appends), self.num_visible_slots)

    @property
    def num_visible_slots(self) -> int:
        """Summed over all tokens."""
        of_appends = sum(num_tokens * append.lane.num_seen(num_tokens) for append, num_tokens in self.appends)
        return of_appends + sum(generate.lane.num_seen(1) for generate in self.generates)

    @property
    def num_tokens(self) -> Counter[str]:
        """By tenant."""
        counts = Counter(generate.tenant for generate in self.generates)
        for append, num_tokens in self.appends:
            counts[append.tenant] += num_tokens
        return counts


class Scheduler:
    """Round robin over tenants and their operations. A step costs time in proportion to the operations, once.

    Args:
        budget: of one step.
        chunk: C, the most tokens a row may bring.

    Attributes:
        measures: what steps cost; without any, only the tokens of a step are bounded.
    """

    def __init__(self, budget: StepBudget, chunk: int) -> None:
        self.budget = budget
        self.chunk = chunk
        self.measures = StepMeasures()
        self._scoring = ScoringCosts()
        # In the order of turns: who had the latest comes last. A prefill has tokens left of its turn.
        self._generates: dict[Generate, None] = {}
        self._appends: dict[Append, int] = {}
        self._shares = TenantShares()
        self._num_unplanned = 0  # steps that come without drafts
        self._step = Step([], [])  # the latest
        self._load = self._step.load  # when it was planned
        self._loads: dict[str, Load] = {}  # by tenant, when it was planned

    def add(self, operation: Append | Generate) -> None:
        if isinstance(operation, Generate):
            self._generates[operation] = None
        else:
            self._appends[operation] = self.chunk

    def remove(self, operation: Append | Generate) -> None:
        if isinstance(operation, Generate):
            del self._generates[operation]
        else:
            del self._appends[operation]

    @property
    def operations(self) -> Iterable[Append | Generate]:
        return (*self._generates, *self._appends)

    @property
    def numbers(self) -> tuple[int, int, int]:
        """How many appends and generates there are, and how many of the latter are paused."""
        return len(self._appends), len(self._generates), sum(generate.is_paused for generate in self._generates)

    @property
    def has_work(self) -> bool:
        return bool(self._appends) or any(not generate.is_paused for generate in self._generates)

    def next_step(self) -> Step:
        """Some prefill always gets on, however many sessions generate, and the other way round."""
        running = [generate for generate in self._generates if not generate.is_paused]
        if any(generate.constraint is not None for generate in running):
            running = that_can_choose(running, has_others=bool(self._appends))
        generates = _by_tenant(running)
        appends = _by_tenant(self._appends)
        alone = {
            tenant: self._plan({tenant: generates.get(tenant, [])}, {tenant: appends.get(tenant, [])})
            for tenant in generates | appends
        }
        self._loads = {tenant: step.load for tenant, step in alone.items()}
        chosen = self._shares.choose(self._loads)
        if len(chosen) == 1:
            (tenant,) = chosen
            self._step, self._load = alone[tenant], self._loads[tenant]
        else:
            self._step = self._plan(_of(generates, chosen), _of(appends, chosen))
            self._load = self._step.load
        self._end_turns(self._step)
        return self._step

    def depths(self, chosen: Collection[Generate]) -> list[int]:
        """How many drafts each of the latest step's generates should have, behind the token that it was given."""
        for generate in chosen:
            if generate.drafter is not None:
                generate.drafter.acceptance.age()
        if self._num_unplanned:
            self._num_unplanned -= 1
            return [0] * len(chosen)
        costs, load = self.measures.costs, self._load
        step_seconds = costs.seconds(load.num_tokens, load.num_visible_slots)
        found = depths_of(chosen, self.chunk, costs, step_seconds, self.budget.tokens - load.num_tokens)
        self._num_unplanned = 0 if any(found) else UNPLANNED_STEPS
        return found

    def account(
        self,
        seconds: float,
        *,
        is_whole: bool = True,
        scoring: Scoring | None = None,
        num_drafts: Mapping[Generate, int] = NO_DRAFTS,
        drafting_seconds: Mapping[str, float] = NO_SECONDS,
    ) -> None:
        """Tells how long the latest step took, whether all of it was forwarded, what of it was scoring, how many drafts
        its generates had, and what a draft model took for them, by tenant.
        """
        drafts = NOTHING_DONE
        if num_drafts or drafting_seconds:
            drafts = DraftsDone.of(num_drafts, self.measures.costs, drafting_seconds)
        self._shares.account(
            self._loads, self._step.num_tokens, seconds, is_whole=is_whole, draft_seconds=drafts.seconds
        )
        if scoring is not None and scoring.num_tokens:
            self._scoring.add(scoring.num_tokens, scoring.seconds)
            seconds -= scoring.seconds
        seconds -= sum(drafting_seconds.values())
        if is_whole and self._load.num_generates:
            num_tokens = self._load.num_tokens + drafts.num_tokens
            self.measures.add(
                MeasuredStep(num_tokens, self._load.num_visible_slots + drafts.num_visible_slots, seconds)
            )

    def _plan(self, generates: Mapping[str, list[Generate]], appends: Mapping[str, list[Append]]) -> Step:
        """A step of these, by tenant."""
        step = Step(list(islice(_in_turns(generates), self._max_generates(any(appends.values())))), [])
        budget = self.budget.for_prefills(self.measures.costs, len(step.generates), step.num_visible_slots)
        for append in _in_turns(appends):
            num_wanted = self._chunk_tokens(append)
            scoring_seconds = self._scoring.token_seconds if append.is_scored else 0.0
            num_tokens = budget.take(num_wanted, append.lane.num_seen(num_wanted), scoring_seconds)
            if num_tokens:
                step.appends.append((append, num_tokens))
            if num_tokens < num_wanted:
                break  # a cheaper one that would still fit does not overtake
        return step

    def _end_turns(self, step: Step) -> None:
        """Who had a turn now has the next one last. A prefill that was cut short keeps its place for the rest."""
        for generate in step.generates:
            del self._generates[generate]
            self._generates[generate] = None
        for append, num_tokens in step.appends:
            self._appends[append] -= num_tokens
            if self._appends[append] <= 0:
                self._appends[append] = self._appends.pop(append) + self.chunk

    def _max_generates(self, has_appends: bool) -> int:
        """In a step that leaves room for a chunk where one is wanted."""
        reserve = min(self.chunk, self.budget.tokens // 2) if has_appends else 0
        return max(1, self.budget.tokens - reserve)

    def _chunk_tokens(self, append: Append) -> int:
        return min(self.chunk, len(append.token_ids) - append.num_done)


def _by_tenant(operations: Iterable[_O]) -> dict[str, list[_O]]:
    """First comes the tenant whose latest turn was first."""
    by_tenant: dict[str, list[_O]] = {}
    for operation in operations:
        # Taken out and put in again: the order is that of each tenant's last operation, which had the latest turn.
        of_tenant = by_tenant.pop(operation.tenant, [])
        of_tenant.append(operation)
        by_tenant[operation.tenant] = of_tenant
    return by_tenant


def _of(by_tenant: dict[str, list[_O]], tenants: Collection[str]) -> dict[str, list[_O]]:
    wanted = set(tenants)
    return {tenant: operations for tenant, operations in by_tenant.items() if tenant in wanted}


def _in_turns(by_tenant: Mapping[str, list[_O]]) -> Iterator[_O]:
    """One of each tenant, then the next of each."""
    rounds = zip_longest(*by_tenant.values())
    return (each for one_of_each in rounds for each in one_of_each if each is not None)
