"""What a turn was like for one player."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn, or the attempt at it.

    Attributes:
        player: who played it.
        index: which turn of the conversation, from 1 on.
        place: which of the players of that turn it was, from 0 on.
        started_seconds: since the first turn of the run.
        history_length: tokens of the whole conversation at the end of the turn, the same for all.
        num_sent_tokens: what was sent as ids: the new ones to a session, the history as well elsewhere.
        num_dropped_tokens: of the history, before this turn, since the context was full.
        num_tokens_out: length of the answer; None where it is not known.
        knows_answer: whether the ids of the answer are known, so that it stands in the history; else drawn ids do.
        time_to_first_token_seconds: by the client's clock; None where no token came.
        total_seconds: until the answer was whole; None where the turn failed.
        num_cached_tokens: what the server says that it needed not prefill; None where it does not say.
        kv_live_bytes: what the verifier held for the session at the end; None for rivals.
        kv_computed_bytes: what prompt and answer weigh in f16, by config.json; None for the runtime, and where that
            is not known.
        rss_bytes: resident memory of the server after the turn; None where it is not known.
        error: why it failed; None where it did not.
    """

    player: str
    index: int
    place: int
    started_seconds: float
    history_length: int
    num_sent_tokens: int
    num_dropped_tokens: int = 0
    num_tokens_out: int | None = None
    knows_answer: bool = True
    time_to_first_token_seconds: float | None = None
    total_seconds: float | None = None
    num_cached_tokens: int | None = None
    kv_live_bytes: int | None = None
    kv_computed_bytes: int | None = None
    rss_bytes: int | None = None
    error: str | None = None
