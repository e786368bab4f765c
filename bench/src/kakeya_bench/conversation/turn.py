"""What one turn of a bench was like."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """An append and the generation that follows, or the attempt at it.

    Attributes:
        session: which of the bench's sessions, from 0 on.
        index: which turn of it, from 1 on.
        started_seconds: since the first turn of the bench.
        wall_seconds: from the append to the end of the generation, as the client sees it.
        history_length: tokens of the session at the end of the turn; 0 where it failed.
        capacity: sinks and window of the session, in tokens; 0 where the turn failed.
        num_new_tokens: what was appended.
        num_tokens_out: what was generated.
        time_to_first_token_seconds: from the append, as the client sees it; None where no token came.
        prefill_seconds: the worker's forward passes over the new tokens; None where the turn failed.
        decode_seconds: the router's time from the generation's start to its end; None where the turn failed.
        kv_live_bytes: what the verifier held for the session at the end; None where the turn failed.
        worker: id of the worker that holds the lane; "" where it is not known.
        worker_rss_bytes: resident memory of that worker's process; None where nobody says.
        num_evicted_tokens: what left the window in this turn.
        error: why it failed; None where it did not.
    """

    session: int
    index: int
    started_seconds: float
    wall_seconds: float
    capacity: int = 0
    num_new_tokens: int = 0
    num_tokens_out: int = 0
    history_length: int = 0
    time_to_first_token_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    kv_live_bytes: int | None = None
    worker: str = ""
    worker_rss_bytes: int | None = None
    num_evicted_tokens: int = 0
    error: str | None = None

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
