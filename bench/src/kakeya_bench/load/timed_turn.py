"""A turn as its user times it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimedTurn:
    """An append and the generation that follows, or the attempt at it.

    Attributes:
        session: which of the level's sessions, from 0 on.
        index: which turn of it, from 1 on.
        started_seconds: since the start of the level.
        wall_seconds: from the append to the end of the generation.
        is_warm_up: it began before the measured period, so that no figure counts it.
        num_new_tokens: what was appended.
        num_tokens_out: what was generated; 0 where the turn failed.
        history_length: tokens of the session at the end of the turn; 0 where it failed.
        time_to_first_token_seconds: from the append; None where no token came or the turn failed.
        time_per_output_token_seconds: between the first token and the last, for each token after the first; None where
            there is none, or the turn failed.
        kv_live_bytes: what the verifier held for the session at the end; None where the turn failed.
        error: why it failed; None where it did not.
    """

    session: int
    index: int
    started_seconds: float
    wall_seconds: float
    is_warm_up: bool
    num_new_tokens: int
    num_tokens_out: int = 0
    history_length: int = 0
    time_to_first_token_seconds: float | None = None
    time_per_output_token_seconds: float | None = None
    kv_live_bytes: int | None = None
    error: str | None = None
