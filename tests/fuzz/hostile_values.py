"""Values that break what was not written for them, for a field of any type."""

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from tests.fuzz.known import Known

_UINT32 = (0, 1, 2, 127, 128, 65_535, 65_536, 65_537, 2**31 - 1, 2**31, 2**32 - 1)
_UINT64 = (*_UINT32, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 10**18)
_FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    5e-324,
    1.0000001,
    1e38,
    -1e38,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
)
_ENUMS = (0, 1, 2, 3, 99, -1, 2**31 - 1, -(2**31))
_TEXTS = (
    "",
    " ",
    "a",
    "0",
    "-1",
    "nan",
    "null",
    "\x00",
    "a\x00b",
    "\r\n",
    "\x1b[2J",
    "\x7f",
    "a\nlevel=error",
    '{"level": "error"}',
    "\u202egnirts",
    "\u0000\ufffd\uffff",
    "\U0001f600" * 40,
    "é" * 128,
    "ß" * 129,
    "*",
    "{}",
    "{demo}",
    "kakeya:{demo}:workers",
    "kakeya:pools",
    "../../etc/passwd",
    "%s%n%x",
    "a|b|c",
    "|0000000000000000|",
    "fuzz.x.y.z",
    "FUZZ",
    "fuzz" * 16,
    "a" * 64,
    "a" * 65,
    "a" * 128,
    "a" * 129,
    "a" * 256,
    "a" * 257,
    "a" * 5_000,
    "a." + "b" * 5_000,
    "return redis.call('FLUSHALL')",
    "127.0.0.1:0",
    "127.0.0.1:65536",
    "[::1]:1",
    "unix:/tmp/x",
    "dns:///localhost:1",
    ":",
    "bearer",
)
_LONG_TEXT_BYTES = 100_000
_LONG_LIST = 5_000
_NUM_BYTES = (0, 1, 8, 200, 4_000, 100_000)
# Messages in which an id alone must not open anything.
_PUBLIC = ("kakeya.v1.", "kakeya.worker.v1.LaneReport")
# What a made-up worker must not claim: with a token for every pool it could rightly take the real one's place.
_NEVER = ("pool", "worker_id", "model", "incarnation")


def hostile_value(field: Field, known: Known, chance: random.Random) -> Any:
    """One value of a scalar or enum field."""
    match field.cpp_type:
        case Field.CPPTYPE_UINT32 | Field.CPPTYPE_INT32:
            return chance.choice(_UINT32)
        case Field.CPPTYPE_UINT64 | Field.CPPTYPE_INT64:
            return chance.choice(_UINT64)
        case Field.CPPTYPE_DOUBLE | Field.CPPTYPE_FLOAT:
            return chance.choice(_FLOATS)
        case Field.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case Field.CPPTYPE_ENUM:
            return chance.choice(_ENUMS)
        case Field.CPPTYPE_STRING if field.type == Field.TYPE_BYTES:
            return chance.randbytes(chance.choice(_NUM_BYTES))
        case Field.CPPTYPE_STRING:
            return _hostile_text(field, known, chance)
    raise AssertionError(f"no hostile value for a field of type {field.cpp_type}")


def _hostile_text(field: Any, known: Known, chance: random.Random) -> str:
    draw = chance.random()
    if draw < 0.02:
        return "x" * _LONG_TEXT_BYTES
    if draw < 0.3 and field.name == "session_id":
        return known.session_id(chance, may_be_foreign=field.containing_type.full_name.startswith(_PUBLIC))
    if draw < 0.3 and field.name not in _NEVER:
        return chance.choice([*known.closed, "demo", ""])
    return chance.choice(_TEXTS)


def make_hostile(message: Message, known: Known, chance: random.Random, *, num_fields: int | None = None) -> None:
    """Puts hostile values into some fields of a message, or where `num_fields` is None into every one."""
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    if num_fields is not None:
        fields = chance.sample(fields, min(num_fields, len(fields)))
    for field in fields:
        _put(message, field, known, chance)


def _put(message: Message, field: Field, known: Known, chance: random.Random) -> None:
    if _is_map(field):
        _fill_map(getattr(message, field.name), field, known, chance)
    elif field.is_repeated:
        _fill_list(message, field, known, chance)
    elif field.message_type is not None:
        make_hostile(getattr(message, field.name), known, chance)
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, hostile_value(field, known, chance))


def _is_map(field: Field) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _fill_map(entries: Any, field: Any, known: Known, chance: random.Random) -> None:
    key, value = field.message_type.fields
    for _ in range(chance.choice((0, 1, 3, 1_100))):
        entries[hostile_value(key, known, chance) if chance.random() < 0.1 else chance.randrange(2_000)] = (
            hostile_value(value, known, chance)
        )


def _fill_list(message: Message, field: Field, known: Known, chance: random.Random) -> None:
    message.ClearField(field.name)
    items = getattr(message, field.name)
    if field.message_type is not None:
        for _ in range(chance.choice((0, 1, 2, 20, 300))):
            make_hostile(items.add(), known, chance)
        return
    length = chance.choice((0, 1, 3, 65, _LONG_LIST)) if chance.random() < 0.3 else chance.randrange(4)
    one = hostile_value(field, known, chance)
    items.extend([one] * length if length > 3 else [hostile_value(field, known, chance) for _ in range(length)])
