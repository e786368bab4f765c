"""What is kept of a conversation: a log, to which each turn appends what is new of it.

So its text is kept, and written down, once. The first record of the log begins the conversation, and the others have
more items. Where an item is deleted, or the metadata change, all becomes one record, and nothing of what was deleted
is left.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import ValidationError

from kakeya_http_shim.responses_api.kept.kept_items import KeptItems
from kakeya_http_shim.responses_api.kept.kept_response import Conversation
from kakeya_http_shim.responses_api.kept.packing import Unpacking, Unreadable, log, packed, records

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class KeptConversation:
    """One conversation.

    Attributes:
        created_at: Unix time in seconds.
        items: each with an id that no other one has.
    """

    created_at: int
    metadata: Mapping[str, str]
    items: Sequence[dict[str, Any]]

    def packed(self) -> bytes:
        """All of it, as the one record of a log."""
        return log([packed({"version": _VERSION, **dataclasses.asdict(self)})])

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Of a log. Raises Unreadable."""
        try:
            unpacking = Unpacking()
            first, *later = (unpacking.unpacked(record)[0] for record in records(data))
            if first["version"] != _VERSION:
                raise Unreadable
            items = [*first["items"], *(item for told in later for item in told["items"])]
            return cls(first["created_at"], first["metadata"], items)
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable from error

    def ids(self) -> list[str]:
        """Of its items, in their order."""
        return [item["id"] for item in self.items]

    def said(self, up_to: str | None = None) -> Conversation:
        """What a response goes on from.

        Args:
            up_to: the id of the last item that counts; None: all do.

        Raises:
            Unreadable: there is no such item, or they are of another version of this server.
        """
        try:
            told = self.items if up_to is None else self.items[: self.ids().index(up_to) + 1]
            kept = KeptItems(told)
            return Conversation(kept.stretches, kept)
        except (ValidationError, ValueError) as error:
            raise Unreadable from error


def appended(items: Sequence[dict[str, Any]]) -> bytes:
    """A record that goes behind those of a log."""
    return log([packed({"items": items})])
