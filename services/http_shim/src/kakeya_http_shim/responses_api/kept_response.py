"""What is kept of a response: the object that its client got, and the items before its answer."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import TypeAdapter, ValidationError

from kakeya_http_shim.responses_api.input_items import AnswerItem, FunctionResultItem, InputItem, InputItems, Item
from kakeya_http_shim.responses_api.packing import Unreadable, packed, unpacked

_VERSION: Final = 1
_BEHIND_VERSION: Final = 2
"""Of one that has not all items itself: a server that does not know of that must not go on from it."""
_KEY_BYTES: Final = 16
_PREFIXES: Final = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
ITEMS: Final = TypeAdapter[list[InputItem]](InputItems)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said before a request.

    Attributes:
        kept: the same items, as they are kept.
    """

    items: Sequence[InputItem] = ()
    kept: Sequence[dict[str, Any]] = ()

    def followed_by(self, other: "Conversation") -> "Conversation":
        """Both."""
        return Conversation([*self.items, *other.items], [*self.kept, *other.kept])


@dataclass(frozen=True, slots=True)
class Behind:
    """The place in a conversation that a response was asked for at.

    Attributes:
        conversation_id: of the one that has the items before those of the response.
        item_id: of the last one of them; None: there are none.
    """

    conversation_id: str
    item_id: str | None


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """One response.

    Attributes:
        response: as its client has it.
        items: before its answer, each with an id; of one in a conversation those that its request has brought.
        behind: where these are; None: there are no others before them.
    """

    response: dict[str, Any]
    items: Sequence[dict[str, Any]]
    behind: Behind | None = None

    @property
    def status(self) -> str:
        return str(self.response["status"])

    def packed(self) -> bytes:
        """For the runtime."""
        told = {"version": _VERSION, "response": self.response, "items": self.items}
        if self.behind is not None:
            told |= {"version": _BEHIND_VERSION, "behind": [self.behind.conversation_id, self.behind.item_id]}
        return packed(told)

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Raises Unreadable."""
        told, _ = unpacked(data)
        try:
            if told["version"] not in (_VERSION, _BEHIND_VERSION):
                raise Unreadable
            behind = Behind(*told["behind"]) if "behind" in told else None
            return cls(told["response"], told["items"], behind)
        except (KeyError, TypeError) as error:
            raise Unreadable from error

    def conversation(self) -> Conversation:
        """Its items with those of its answer, which another one goes on from. Raises Unreadable."""
        try:
            told = [*self.items, *self.response["output"]]
            return Conversation(ITEMS.validate_python(told), told)
        except (ValidationError, KeyError, TypeError) as error:
            raise Unreadable from error


def items_to_keep(items: Iterable[InputItem]) -> list[dict[str, Any]]:
    """As a client can list them: each with its id and its kind, and nothing that it has not said."""
    return [_kept(item) for item in items]


def _kept(item: InputItem) -> dict[str, Any]:
    told = item.model_dump(exclude_none=True)
    kind = told.setdefault("type", "message")
    told["id"] = told.get("id") or f"{_PREFIXES[kind]}_{secrets.token_hex(_KEY_BYTES)}"
    if kind != "reasoning":
        told.setdefault("status", "completed")
    else:
        told.setdefault("summary", [])
    if isinstance(item, Item) and not isinstance(item, FunctionResultItem) and isinstance(told.get("content"), str):
        part = "output_text" if isinstance(item, AnswerItem) else "input_text"
        told["content"] = [{"type": part, "text": told["content"]}]
    return told
