"""An answer whose session is there, and what it takes."""

from dataclasses import dataclass

from kakeya import AsyncGeneration
from kakeya_http_shim.choices.forgetting import Forgotten
from kakeya_http_shim.conversations.said import Said
from kakeya_http_shim.models.prompt import Thinking


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is there: from now on what passes is the model's time.

    Attributes:
        num_prompt_tokens: in its history before the answer.
        num_kept: tokens that the model sees at once.
        said: of a chat's session; None: it is none of a chat.
        begins: how the answer does.
        generation: that it is in; None: nothing can go on with it elsewhere.
    """

    fingerprint: str
    num_prompt_tokens: int
    num_kept: int
    said: Said | None = None
    begins: Thinking = "not"
    generation: AsyncGeneration | None = None

    def spent(self, num_tokens: int) -> "Spent":
        """Once the answer has so many tokens."""
        length = self.num_prompt_tokens + num_tokens
        return Spent(self.num_prompt_tokens, num_tokens, length, min(length, self.num_kept), self.said)


@dataclass(frozen=True, slots=True)
class Spent:
    """What an answer took.

    Attributes:
        num_tokens: of the answer, one that ended it included.
        history_length: tokens of prompt and answer.
        num_retained: those that the model still sees.
        said: as of `Opened`.
        num_drafted, num_accepted: drafts of the session's proposer that were checked, and right.
        num_reasoning_tokens: of the answer's, up to the one that ended its thoughts; like drafts, known at its end.
        forgotten: of what was watched.
    """

    num_prompt_tokens: int
    num_tokens: int
    history_length: int
    num_retained: int
    said: Said | None = None
    forgotten: Forgotten | None = None
    num_drafted: int = 0
    num_accepted: int = 0
    num_reasoning_tokens: int = 0
