"""Messages of the contract as JSON documents."""

from typing import Any

from google.protobuf.message import Message

from kakeya.cli.output import moment


def document(message: Message) -> dict[str, Any]:
    """Every field under its name in the contract.

    Integers stay numbers (protobuf's own JSON makes strings of them), fields named ..._at become ISO 8601 in UTC or
    null, and enums their names in lower case without the prefix. What can be unset, and is, is null.
    """
    return {field.name: _field(field, message) for field in message.DESCRIPTOR.fields}


def _field(field: Any, message: Message) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    return [_single(field, item) for item in value] if field.is_repeated else _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if isinstance(value, Message):
        return document(value)
    if field.enum_type is not None:
        return enum_name(field.enum_type, value)
    return moment.iso(value) if field.name.endswith("_at") else value


def enum_name(kind: Any, number: int) -> str:
    """E.g. "sessions" of SCOPE_SESSIONS; the number of one that this version does not know."""
    known = kind.values_by_number.get(number)
    return str(number) if known is None else known.name.rpartition("_")[2].lower()
