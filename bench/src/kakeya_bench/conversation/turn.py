"""What one turn of a bench was like."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTurn:
    """An append and the generation that follows, or the attempt at it.

    Attributes:
        session: which of those that are held at the same time, from 0 on.
        index: which turn of it, from 1 on.
        started_seconds: since the first turn of the bench, or the start of the level.
        wall_seconds: from the append to the end of the generation, as the client sees it.
        num_new_tokens: what was appended.
        num_tokens_out: what was generated; 0 where the turn failed.
        history_length: tokens of the session at the end of the turn; 0 where it failed.
        time_to_first_token_seconds: from the append, as the client sees it; None where no token came.
        kv_live_bytes: what the verifier held for the session at the end; None where the turn failed.
        error: why it failed; None where it did not.
    """

    session: int
    index: int
    started_seconds: float
    wall_seconds: float
    num_new_tokens: int = 0
    num_tokens_out: int = 0
    history_length: int = 0
    time_to_first_token_seconds: float | None = None
    kv_live_bytes: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedTurn(PlainTurn):
    """As its user times it.

    Attributes:
        is_warm_up: it began before the measured period, so that no figure counts it.
        time_per_output_token_seconds: between the first token and the last, for each token after the first; None where
            there is none, or the turn failed.
    """

    is_warm_up: bool
    time_per_output_token_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(PlainTurn):
    """With what the runtime says of it.

    Attributes:
        capacity: sinks and window of the session, in tokens; 0 where the turn failed.
        prefill_seconds: the worker's forward passes over the new tokens; None where the turn failed.
        decode_seconds: the router's time from the generation's start to its end; None where the turn failed.
        worker: id of the worker that holds the lane; "" where it is not known.
        worker_rss_bytes: resident memory of that worker's process; None where nobody says.
        num_evicted_tokens: what left the window in this turn.
    """

    capacity: int = 0
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    worker: str = ""
    worker_rss_bytes: int | None = None
    num_evicted_tokens: int = 0

    @property
    def history_before(self) -> int:
        """Tokens of the session at the start of a turn that did not fail."""
        return self.history_length - self.num_new_tokens - self.num_tokens_out

    @property
    def first_token_cost_seconds(self) -> float | None:
        """Time to the first token per new token; None where there is none, or the turn failed."""
        if self.error is not None or self.time_to_first_token_seconds is None or not self.num_new_tokens:
            return None
        return self.time_to_first_token_seconds / self.num_new_tokens

    @property
    def is_after_plateau(self) -> bool:
        """Whether the lane was full before the turn: from there on every turn has the same to do."""
        return self.error is None and self.history_before >= self.capacity
