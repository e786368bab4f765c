"""What is kept of a response: the object that its client got, and the items before its answer."""

import json
import secrets
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import TypeAdapter, ValidationError

from kakeya_http_shim.responses_api.input_items import AnswerItem, FunctionResultItem, InputItem, InputItems, Item

_VERSION: Final = 1
_MAX_BYTES: Final = 64 << 20
"""Of one that is unpacked. An object has 1 MiB at most, which who speaks to the runtime could have made of far more."""
_LEVEL: Final = 1
"""A third of the time of zlib's own choice, for a quarter more bytes: clients wait for it."""
_KEY_BYTES: Final = 16
_PREFIXES: Final = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
_ITEMS: Final = TypeAdapter[list[InputItem]](InputItems)


class Unreadable(Exception):
    """It is none that this version of the server has kept."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said before a request.

    Attributes:
        kept: the same items, as they are kept.
    """

    items: Sequence[InputItem] = ()
    kept: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """One response.

    Attributes:
        response: as its client has it.
        items: of the conversation before its answer, each with an id.
    """

    response: dict[str, Any]
    items: Sequence[dict[str, Any]]

    @property
    def status(self) -> str:
        return str(self.response["status"])

    def packed(self) -> bytes:
        """For the runtime, which does not look inside."""
        told = {"version": _VERSION, "response": self.response, "items": self.items}
        return zlib.compress(json.dumps(told, separators=(",", ":")).encode(), _LEVEL)

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Raises Unreadable."""
        unpacking = zlib.decompressobj()
        try:
            text = unpacking.decompress(data, _MAX_BYTES)
            told = json.loads(text) if unpacking.eof else {}
            if told["version"] != _VERSION:
                raise Unreadable
            return cls(told["response"], told["items"])
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            raise Unreadable from error

    def conversation(self) -> Conversation:
        """Its items with those of its answer, which another one goes on from. Raises Unreadable."""
        try:
            told = [*self.items, *self.response["output"]]
            return Conversation(_ITEMS.validate_python(told), told)
        except (ValidationError, KeyError, TypeError) as error:
            raise Unreadable from error


def items_to_keep(items: Iterable[InputItem]) -> list[dict[str, Any]]:
    """As a client can list them: each with its id and its kind, and nothing that it has not said."""
    return [_kept(item) for item in items]


def _kept(item: InputItem) -> dict[str, Any]:
    told = item.model_dump(exclude_none=True)
    kind = told.setdefault("type", "message")
    told.setdefault("id", f"{_PREFIXES[kind]}_{secrets.token_hex(_KEY_BYTES)}")
    if kind != "reasoning":
        told.setdefault("status", "completed")
    else:
        told.setdefault("summary", [])
    if isinstance(item, Item) and not isinstance(item, FunctionResultItem) and isinstance(told.get("content"), str):
        part = "output_text" if isinstance(item, AnswerItem) else "input_text"
        told["content"] = [{"type": part, "text": told["content"]}]
    return told
