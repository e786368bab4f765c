"""What a step may hold: tokens, which bound its memory, and the time that prefills may add to it."""

import math
from dataclasses import dataclass

from kakeya_worker.engine.steps.step_costs import StepCosts

LEAST_PREFILL_PART = 0.25  # of what those who generate take themselves: prefills get on, however small the budget is


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

    def take(self, num_tokens: int, num_visible_slots: int) -> int:
        """As many of a session's next tokens as fit, each seeing so many slots; of the first session one at least.

        So some prefill gets on in every step; a token that alone takes longer has its share of the time with that.
        """
        token_seconds = self.costs.added_seconds(num_visible_slots)
        num_affordable = num_tokens
        if num_tokens * token_seconds > self.seconds:
            num_affordable = max(int(self.is_untouched), math.floor(self.seconds / token_seconds))
        num_taken = min(num_tokens, self.tokens, num_affordable)
        self.tokens -= num_taken
        self.seconds = max(0.0, self.seconds - num_taken * token_seconds)
        self.is_untouched = False
        return num_taken
