"""What is kept of a response: the object that its client got, and the items before its answer."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from pydantic import ValidationError

from kakeya_http_shim.responses_api.as_chat import Stretch, items_of
from kakeya_http_shim.responses_api.input_items import AnswerItem, FunctionResultItem, InputItem, Item
from kakeya_http_shim.responses_api.kept.kept_items import KeptItems
from kakeya_http_shim.responses_api.kept.packing import MAX_BYTES, Unpacking, Unreadable, log, packed, records
from kakeya_http_shim.responses_api.told_stream import Run, Told

_VERSION: Final = 3
_VERSION_AFTER: Final = 4
"""Of one that does not have all its items: servers that do not know this take no other for it."""
_KEY_BYTES: Final = 16
_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
    "compaction": "cmp",
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said before a request.

    Attributes:
        kept: the same, as it is kept.
    """

    stretches: Sequence[Stretch] = ()
    kept: KeptItems = field(default_factory=KeptItems)

    @property
    def items(self) -> Sequence[InputItem]:
        return items_of(self.stretches)

    def followed_by(self, other: "Conversation") -> "Conversation":
        """Both."""
        if not self.stretches:
            return other
        return Conversation([*self.stretches, *other.stretches], self.kept.followed_by(other.kept))


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
        items: before its answer, each with an id: all of them; of one in a conversation, or with `after`, those
            that its request has brought.
        behind: where these are in a conversation; None: it is in none.
        after: the response that it goes on from, as long as the items up to its end are not kept here, too: until this
            one ends itself.
        run: while it is being answered, if another server could go on with that.
        told: how its stream was told; None: it was none, or has not come to its end.
    """

    response: dict[str, Any]
    items: KeptItems
    behind: Behind | None = None
    after: str | None = None
    run: Run | None = None
    told: Told | None = None

    @property
    def status(self) -> str:
        return str(self.response["status"])

    def packed(self) -> bytes:
        """For the runtime."""
        version = _VERSION if self.after is None else _VERSION_AFTER
        told: dict[str, Any] = {"version": version, "response": self.response}
        if self.behind is not None:
            told["behind"] = [self.behind.conversation_id, self.behind.item_id]
        if self.after is not None:
            told["after"] = self.after
        if self.run is not None:
            told["run"] = self.run.packed()
        if self.told is not None:
            told["told"] = asdict(self.told)
        return log([packed(told), *self.items.packed])

    @classmethod
    def unpacked(cls, data: bytes, max_bytes: int = MAX_BYTES) -> Self:
        """Raises Unreadable: it is none, or more is to be unpacked than `max_bytes`."""
        unpacking = Unpacking(max_bytes)
        try:
            first, *others = records(data)
            told, _ = unpacking.unpacked(first)
            if told["version"] not in (_VERSION, _VERSION_AFTER):
                raise Unreadable
            items = KeptItems.unpacked(others, unpacking)
            behind = Behind(*told["behind"]) if "behind" in told else None
            run = Run.unpacked(told["run"]) if "run" in told else None
            stream = Told(**told["told"]) if "told" in told else None
            return cls(told["response"], items, behind, told.get("after"), run, stream)
        except (KeyError, TypeError, ValueError) as error:
            raise Unreadable from error

    def conversation(self) -> Conversation:
        """Its items with those of its answer, which another one goes on from. Raises Unreadable."""
        try:
            kept = self.items.followed_by(self.response["output"])
            return Conversation(kept.stretches, kept)
        except (ValidationError, KeyError, TypeError) as error:
            raise Unreadable from error


def items_to_keep(items: Iterable[InputItem]) -> list[dict[str, Any]]:
    """As a client can list them: each with its id and its kind, and nothing that it has not said."""
    return [_kept(item) for item in items]


def _kept(item: InputItem) -> dict[str, Any]:
    told = item.model_dump(exclude_none=True)
    kind = told.setdefault("type", "message")
    told["id"] = told.get("id") or f"{_PREFIXES[kind]}_{secrets.token_hex(_KEY_BYTES)}"
    if kind == "reasoning":
        told.setdefault("summary", [])
    elif kind != "compaction":
        told.setdefault("status", "completed")
    if isinstance(item, Item) and not isinstance(item, FunctionResultItem) and isinstance(told.get("content"), str):
        part = "output_text" if isinstance(item, AnswerItem) else "input_text"
        told["content"] = [{"type": part, "text": told["content"]}]
    return told
