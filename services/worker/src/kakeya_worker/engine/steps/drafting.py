"""How many drafts the generates of a step should have, and what those were that they had."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kakeya_worker.engine.lanes.operation import MAX_UNREAD_TOKENS, Generate
from kakeya_worker.engine.speculation.depths import Candidate, depths
from kakeya_worker.engine.steps.step_costs import StepCosts

NO_DRAFTS: Mapping[Generate, int] = MappingProxyType({})


def depths_of(
    chosen: Collection[Generate], chunk: int, costs: StepCosts, step_seconds: float, num_tokens: int
) -> list[int]:
    """Of generates whose next token is chosen and delivered; see `kakeya_worker.engine.speculation.depths.depths`.

    Args:
        chunk: the most tokens a row may bring.
        step_seconds: of the step without drafts.
        num_tokens: that it still has room for.
    """
    mosts = [_most(generate, chunk) for generate in chosen]
    if not any(mosts):
        return mosts
    candidates = []
    for generate, most in zip(chosen, mosts, strict=True):
        share, tokens_a_step = 0.0, 1.0
        if generate.drafter is not None:
            acceptance = generate.drafter.acceptance
            share, tokens_a_step = acceptance.share, acceptance.tokens_a_step
        seconds = costs.added_seconds(generate.lane.num_seen(1))
        candidates.append(Candidate(share, most, seconds, tokens_a_step))
    return depths(candidates, step_seconds, num_tokens)


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


@dataclass(frozen=True)
class DraftsDone:
    """What the drafts of a step were.

    Attributes:
        num_tokens, num_visible_slots: that they were, and saw in all.
        seconds: that they are expected to have added, by tenant.
    """

    num_tokens: int = 0
    num_visible_slots: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, num_drafts: Mapping[Generate, int], costs: StepCosts) -> "DraftsDone":
        """Of the drafts of each generate."""
        num_visible_slots, seconds = 0, dict[str, float]()
        for generate, num_tokens in num_drafts.items():
            num_seen = generate.lane.num_seen(1)
            num_visible_slots += num_tokens * num_seen
            added_seconds = num_tokens * costs.added_seconds(num_seen)
            seconds[generate.tenant] = seconds.get(generate.tenant, 0.0) + added_seconds
        return cls(sum(num_drafts.values()), num_visible_slots, seconds)


NOTHING_DONE = DraftsDone()
