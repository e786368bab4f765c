"""What is said in each turn, and what became of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice

from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.conversation.prompts import RandomTokens


@dataclass(frozen=True, slots=True)
class Said:
    """What is said: the same to all players.

    Attributes:
        index: which turn, from 1 on.
        new_tokens: to be sent.
        stand_in: takes an answer's place in the history of a player whose answer is not known.
    """

    index: int
    new_tokens: list[int]
    stand_in: list[int]


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn of one player, or the attempt at it.

    Attributes:
        player: who played it.
        index: which turn of the conversation, from 1 on.
        place: which of the players of that turn it was, from 0 on.
        started_seconds: since the first turn of the run.
        history_length: tokens of the whole conversation at the end of the turn, the same for all players of ids.
        num_sent_tokens: what was sent: the new ones to a session and to responses, the history as well elsewhere.
        num_dropped_tokens: of the history, before this turn, since the context was full.
        num_new_tokens: that the chat template writes of a new message; None for players of ids.
        num_appended_tokens: that the server says it has added to the live session before its answer.
        session_state, session_why: what the server says became of that session; None where it says nothing.
        client_seconds: what a client of texts took to make a request of them, which is before it was sent.
        num_tokens_out: length of the answer; None where it is not known.
        knows_answer: whether the ids of the answer are known, so that it stands in the history; else drawn ids do.
        time_to_first_token_seconds: by the client's clock, from where it is sent; None where no token came.
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
    num_new_tokens: int | None = None
    num_appended_tokens: int | None = None
    session_state: str | None = None
    session_why: str | None = None
    client_seconds: float | None = None
    num_tokens_out: int | None = None
    knows_answer: bool = True
    time_to_first_token_seconds: float | None = None
    total_seconds: float | None = None
    num_cached_tokens: int | None = None
    kv_live_bytes: int | None = None
    kv_computed_bytes: int | None = None
    rss_bytes: int | None = None
    error: str | None = None


@dataclass
class LongChat:
    """What requests of a long chat cost the server's process, one after the other.

    Attributes:
        num_messages: of the first of them.
        cpu_seconds: of each: processor time from where it was sent until its answer was whole, and a moment longer.
        session_states: what the server said of each; empty where it says nothing.
        error: why there are no more; None where there are all.
    """

    num_messages: int
    cpu_seconds: list[float] = field(default_factory=list)
    session_states: list[str] = field(default_factory=list)
    error: str | None = None


@dataclass(frozen=True)
class Script:
    """Random ids; the same for the same seed. Answers end only where they are as long as all others.

    Attributes:
        vocab_size: ids are below it.
    """

    settings: CompareSettings
    vocab_size: int
    eos_token_ids: list[int] = field(default_factory=list)

    def prompts(self, conversation: int) -> RandomTokens:
        """The new ids of each turn of one conversation: 0 is the one that is measured, others are for the warm-up."""
        return self._drawn(self.settings.new_tokens, 2 * conversation)

    def turns(self) -> Iterator[Said]:
        """All those of the conversation that is measured."""
        return islice(self.said(0), self.settings.turns)

    def said(self, conversation: int) -> Iterator[Said]:
        """The turns of any conversation, without end."""
        new, stand_ins = self.prompts(conversation), self._drawn(self.settings.max_tokens, 2 * conversation + 1)
        for index in count(1):
            yield Said(index, new.next_turn(None), stand_ins.next_turn(None))

    def _drawn(self, num_tokens: int, conversation: int) -> RandomTokens:
        return RandomTokens(num_tokens, self.vocab_size, seed=self.settings.seed, conversation=conversation)
