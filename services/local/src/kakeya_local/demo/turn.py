"""A turn of the demo's conversations."""

from dataclasses import dataclass

from kakeya_local.demo.http_exchange import Completion


@dataclass(frozen=True)
class Turn:
    """One turn of one conversation, both counted from 1.

    Attributes:
        history_length: after the turn.
        new_tokens: by which the turn grew the history: those appended and those generated.
        generated_tokens: of these.
        prefill_seconds: server time for the appended tokens; None over HTTP, where it is not said.
        decode_seconds: server time for the generated tokens; None likewise.
        kv_live_bytes: after the turn, as the verifier counted them.
        user: what was said.
        answer: text of the generated tokens.
        expected: what the answer should hold; "" for anything.
        still_in_sight: whether what should have been forgotten by then could be seen, so that not to know it proves
            nothing.
        evicted_tokens: that left the window in this turn.
        forgotten_tokens: of the history, out of sight after the turn.
        completion: what was told over HTTP; None of a turn over gRPC.
    """

    conversation: int
    turn: int
    history_length: int
    new_tokens: int
    generated_tokens: int
    prefill_seconds: float | None
    decode_seconds: float | None
    kv_live_bytes: int
    user: str = ""
    answer: str = ""
    expected: str = ""
    evicted_tokens: int = 0
    forgotten_tokens: int = 0
    still_in_sight: bool = False
    completion: Completion | None = None

    @property
    def as_expected(self) -> bool:
        return self.expected in self.answer and not self.still_in_sight

    @property
    def fault(self) -> str:
        """What is wrong with an answer that is not as expected."""
        if self.still_in_sight:
            return "although what should have been forgotten is still in sight"
        return f"which lacks {self.expected!r}"
