"""How often a session's drafts are right, and what they bring it, by those of late."""

from dataclasses import dataclass

_PRIOR_TRIALS, _PRIOR_HITS = 1.0, 0.75  # of a session that nothing is known of
REMEMBERED_PART = 0.98  # a step later: after fifty steps of prose, a quotation is tried for again
REMEMBERED_PART_OF_MODEL = 0.995  # how well two models agree changes less than what is said
_REMEMBERED_GAIN = 0.95  # likewise, of tokens a step


@dataclass
class Acceptance:
    """Of drafts behind a right one, or behind the chosen token: that the next one is right, too.

    Attributes:
        remembered_part: of what was counted before, a step later.
        num_drafted, num_accepted: drafts that were checked so far, and those that were right.
        tokens_a_step: on average of late, those steps that had no drafts among them.
    """

    remembered_part: float = REMEMBERED_PART
    num_drafted: int = 0
    num_accepted: int = 0
    tokens_a_step: float = 1.5  # of which nothing is known yet
    _trials: float = 0.0
    _hits: float = 0.0

    @property
    def share(self) -> float:
        """0 to 1."""
        return (_PRIOR_HITS + self._hits) / (_PRIOR_TRIALS + self._trials)

    def age(self) -> None:
        """A step begins, in which the session gets its one token."""
        self._trials *= self.remembered_part
        self._hits *= self.remembered_part
        self.tokens_a_step = 1.0 + _REMEMBERED_GAIN * (self.tokens_a_step - 1.0)

    def add(self, num_drafted: int, num_accepted: int) -> None:
        """So many drafts were checked in the step; of those behind the first wrong one nothing is known."""
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted
        self.tokens_a_step += (1.0 - _REMEMBERED_GAIN) * num_accepted
        self._hits += num_accepted
        self._trials += min(num_accepted + 1, num_drafted)
