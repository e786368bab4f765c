"""What a compaction item holds, which only this server can read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import TypeAdapter, ValidationError

from kakeya_http_shim.requests.compacted_message import Compacted, CompactedMessage
from kakeya_http_shim.requests.messages import Message

PURPOSE: Final = "compaction"
_VERSION: Final = 1
_MESSAGES: Final = TypeAdapter[list[Message]](list[Message])


class UnreadableCompaction(Exception):
    """It was made by another version of this server."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """A conversation without what is forgotten.

    Attributes:
        head: system messages at its beginning, without the request's instructions.
        compacted: None: nothing was answered yet, and all messages are there.
        behind: the last answer, and the messages behind it.
    """

    head: Sequence[Message]
    compacted: Compacted | None
    behind: Sequence[Message]

    def packed(self) -> bytes:
        """To be sealed."""
        compacted = self.compacted
        told: dict[str, Any] = {
            "version": _VERSION,
            "head": _plain(self.head),
            "behind": _plain(self.behind),
        }
        if compacted is not None:
            told["compacted"] = {
                "tokenizer": compacted.tokenizer,
                "root": compacted.root.hex(),
                "link": compacted.link.hex(),
                "token_ids": compacted.token_ids,
                "history_length": compacted.history_length,
            }
        return json.dumps(told, separators=(",", ":")).encode()

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Raises UnreadableCompaction."""
        try:
            told = json.loads(data)
            if told["version"] != _VERSION:
                raise UnreadableCompaction
            return cls(
                _MESSAGES.validate_python(told["head"]),
                _compacted(told["compacted"]) if "compacted" in told else None,
                _MESSAGES.validate_python(told["behind"]),
            )
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise UnreadableCompaction from error

    @property
    def messages(self) -> list[Message]:
        """That it stands for in a conversation."""
        gone: list[Message] = [] if self.compacted is None else [CompactedMessage.of(self.compacted)]
        return [*self.head, *gone, *self.behind]


def _plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [message.model_dump(mode="json", by_alias=True, exclude_unset=True) for message in messages]


def _compacted(told: dict[str, Any]) -> Compacted:
    return Compacted(
        str(told["tokenizer"]),
        bytes.fromhex(told["root"]),
        bytes.fromhex(told["link"]),
        tuple(map(int, told["token_ids"])),
        int(told["history_length"]),
    )
