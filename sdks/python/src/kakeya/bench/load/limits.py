"""How long a user waits before the wait counts against the runtime."""

from dataclasses import dataclass

from kakeya.bench.load.timed_turn import TimedTurn


@dataclass(frozen=True, slots=True)
class Limits:
    """Both are met by a turn that takes exactly so long.

    Attributes:
        time_to_first_token_seconds: most that may pass from the append to the first token.
        time_per_output_token_seconds: most that each token after it may take, on average over the turn.
    """

    time_to_first_token_seconds: float
    time_per_output_token_seconds: float

    def are_met_by(self, turn: TimedTurn) -> bool:
        """Whether the turn succeeded in time. An answer of one token has no time per token after the first."""
        first, each = turn.time_to_first_token_seconds, turn.time_per_output_token_seconds
        if turn.error is not None or first is None or first > self.time_to_first_token_seconds:
            return False
        return each is None or each <= self.time_per_output_token_seconds
