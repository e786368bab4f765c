"""How many drafts the generates of a step should have, which these are, and what those were that they had."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from kakeya_worker.engine.costs.step_costs import StepCosts
from kakeya_worker.engine.lanes.operation import MAX_UNREAD_TOKENS, Generate
from kakeya_worker.engine.speculation.choosing import GREEDY, Choosing
from kakeya_worker.engine.speculation.depths import Candidate, depths
from kakeya_worker.engine.speculation.proposers import Proposers, Wish

NO_DRAFTS: Mapping[Generate, int] = MappingProxyType({})
NO_SECONDS: Mapping[str, float] = MappingProxyType({})


def depths_of(
    chosen: Collection[Generate], chunk: int, costs: StepCosts, step_seconds: float, num_tokens: int
) -> list[int]:
    """Of generates whose next token is chosen and delivered; see `kakeya_worker.engine.speculation.depths.depths`.

    The forward passes of a draft model are shared by those that it drafts for. So where it does not pay for some of
    them, it is reckoned again for the others.

    Args:
        chunk: the most tokens a row may bring.
        step_seconds: of the step without drafts.
        num_tokens: that it still has room for.
    """
    mosts = [_most(generate, chunk) for generate in chosen]
    if not any(mosts):
        return mosts
    candidates = [_candidate(generate, most, costs) for generate, most in zip(chosen, mosts, strict=True)]
    of_model = {
        number: generate.drafter
        for number, generate in enumerate(chosen)
        if mosts[number] and generate.drafter is not None and generate.drafter.is_of_model
    }
    while True:
        priced = candidates.copy()
        for number, drafter in of_model.items():
            row_seconds = candidates[number].seconds
            priced[number] = candidates[number]._replace(seconds=row_seconds + drafter.draft_seconds(len(of_model)))
        found = depths(priced, step_seconds, num_tokens)
        idle = [number for number in of_model if not found[number]]
        if len(idle) in (0, len(of_model)):
            return found
        for number in idle:
            del of_model[number]
            candidates[number] = candidates[number]._replace(most=0)


def _candidate(generate: Generate, most: int, costs: StepCosts) -> Candidate:
    """At the price of its drafts' rows."""
    share, tokens_a_step = 0.0, 1.0
    if generate.drafter is not None:
        acceptance = generate.drafter.acceptance
        share, tokens_a_step = acceptance.share, acceptance.tokens_a_step
    return Candidate(share, most, costs.added_seconds(generate.lane.num_seen(1)), tokens_a_step)


def _most(generate: Generate, chunk: int) -> int:
    """Drafts that fit into its row, and that it could take in if all were right: as its tokens, unread, in its lane."""
    if generate.drafter is None or generate.own_finish is not None:
        return 0
    room = generate.lane.room
    limits: tuple[int, ...] = (
        generate.drafter.max_tokens,
        chunk - 1,
        generate.max_tokens - generate.num_generated,
        MAX_UNREAD_TOKENS - generate.num_unread,
        *(() if room is None else (room - 1,)),
    )
    return max(0, min(limits))


class Drafted(NamedTuple):
    """Drafts behind the token that was chosen for each generate, where there are any.

    Attributes:
        seconds: that a draft model took for them, by tenant; what other proposers take is not worth counting.
    """

    tokens: dict[Generate, tuple[int, ...]]
    seconds: Mapping[str, float] = NO_SECONDS


NOTHING_DRAFTED = Drafted({})


def draft(
    chosen: Mapping[Generate, int], depths: Callable[[Collection[Generate]], list[int]], proposers: Proposers
) -> Drafted:
    """Asks the proposers of generates, whose tokens were delivered; masks behind drafts are sought meanwhile.

    Args:
        depths: as of `kakeya_worker.engine.steps.scheduler.Scheduler`.
    """
    wishes = {
        generate: Wish(drafter, token_id, depth, _choosing(generate) if drafter.is_of_model else GREEDY)
        for (generate, token_id), depth in zip(chosen.items(), depths(list(chosen)), strict=True)
        if depth and (drafter := generate.drafter) is not None
    }
    if not wishes:
        return NOTHING_DRAFTED
    began = time.perf_counter()
    drafts = zip(wishes, proposers.propose(list(wishes.values())), strict=True)
    seconds = time.perf_counter() - began
    found = {generate: of_generate for generate, of_generate in drafts if of_generate}
    for generate, of_generate in found.items():
        if generate.constraint is not None:
            generate.constraint.foresee(of_generate)
    return Drafted(found, _by_tenant(wishes, seconds))


def _choosing(generate: Generate) -> Choosing:
    """How it will choose behind the token that was delivered last."""
    return Choosing(
        generate.sampling,
        generate.lane.length + 1,
        Counter(generate.counts),
        generate.eos_token_ids,
        generate.max_tokens if generate.ignores_eos else generate.min_tokens - generate.num_generated,
    )


def _by_tenant(wishes: Mapping[Generate, Wish], seconds: float) -> dict[str, float]:
    """Of a draft model, by how much each wished for."""
    nums: Counter[str] = Counter()
    for generate, wish in wishes.items():
        if wish.drafter.is_of_model:
            nums[generate.tenant] += wish.num_tokens
    return {tenant: seconds * num / nums.total() for tenant, num in nums.items()}


@dataclass(frozen=True)
class DraftsDone:
    """What the drafts of a step were.

    Attributes:
        num_tokens, num_visible_slots: that they were, and saw in all.
        seconds: that they are expected to have added, and what a draft model took for them, by tenant.
    """

    num_tokens: int = 0
    num_visible_slots: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, num_drafts: Mapping[Generate, int], costs: StepCosts, drafting_seconds: Mapping[str, float]
    ) -> "DraftsDone":
        """Of the drafts of each generate; see `Drafted`."""
        num_visible_slots, seconds = 0, dict(drafting_seconds)
        for generate, num_tokens in num_drafts.items():
            num_seen = generate.lane.num_seen(1)
            num_visible_slots += num_tokens * num_seen
            added_seconds = num_tokens * costs.added_seconds(num_seen)
            seconds[generate.tenant] = seconds.get(generate.tenant, 0.0) + added_seconds
        return cls(sum(num_drafts.values()), num_visible_slots, seconds)


NOTHING_DONE = DraftsDone()
