"""What stands in a conversation for all that a client does not send again, since it has had that compacted."""

from dataclasses import dataclass
from typing import Self

from pydantic import PrivateAttr

from kakeya_http_shim.requests.messages import UserMessage


@dataclass(frozen=True, slots=True)
class Compacted:
    """What is known of it. The messages behind it begin with the answer that it ended with.

    Attributes:
        tokenizer: digest of the one whose tokens these are.
        root: of the conversation's chain of tags, when it was compacted.
        link: the element of that chain before the answer.
        token_ids: that a session still saw where the answer had ended, without those of the head.
        history_length: tokens up to there.
    """

    tokenizer: str
    root: bytes
    link: bytes
    token_ids: tuple[int, ...]
    history_length: int


class CompactedMessage(UserMessage):
    """Said by nobody: a chat template writes it as an empty message, where it writes it at all."""

    _compacted: Compacted | None = PrivateAttr(None)

    @classmethod
    def of(cls, compacted: Compacted | None) -> Self:
        """None: it is not known yet."""
        message = cls.model_validate({"role": "user", "content": ""})
        message._compacted = compacted
        return message

    @property
    def compacted(self) -> Compacted | None:
        return self._compacted
