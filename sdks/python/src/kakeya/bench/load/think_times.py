"""How long a user thinks before the next turn: the same for the same seed."""

import random


class ThinkTimes:
    """Exponential, as of people who may speak up at any moment: the turns of many of them come as by chance.

    Args:
        mean_seconds: 0 for users who never think.
        conversation: whose; each has times of its own.
    """

    def __init__(self, mean_seconds: float, *, seed: int, conversation: int) -> None:
        self._mean_seconds = mean_seconds
        self._draw = random.Random(f"think {seed}/{conversation}")

    def next_seconds(self) -> float:
        """From the end of an answer to the next turn."""
        return self._draw.expovariate(1 / self._mean_seconds) if self._mean_seconds else 0.0
