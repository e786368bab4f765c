"""The bytes of a request: valid, hostile, mutated, random, or far too many."""

import math
import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from tests.soak.fuzz.known import Known
from tests.soak.fuzz.methods import VERIFIER, Method
from tests.soak.fuzz.valid_requests import valid_request

ROUTER_MESSAGE_BYTES, WORKER_MESSAGE_BYTES = 1 << 20, 5 << 20
"""What the services are told to take: larger messages cost the fuzzer less than beyond their default."""

_KINDS = {"valid": 30, "one field": 32, "some fields": 10, "all fields": 8, "mutated": 13, "random": 6.9}
_KINDS |= {"oversize": 0.1}
_NUM_HOSTILE = {"one field": 1, "some fields": 3, "all fields": None}
_MUTATIONS = ("flip a bit", "cut", "insert", "twice", "append what is odd", "a negative number", "another type")
_NEGATIVE_VARINT = b"\xff" * 9 + b"\x01"
_ODD_FIELDS = (
    _NEGATIVE_VARINT,
    b"\xff" * 11,  # a varint without end
    b"\x80",
    b"\x0a\xff\xff\xff\xff\x0f",  # a length far beyond the message
    b"\x0a\x01\xff",  # a string that is not UTF-8
    b"\x0b\x0c",  # a group
    b"\x0b" * 200,  # groups in groups
    b"\x0f\x00",  # no such wire type
    b"\x00\x00",  # field 0
    b"\xf8\xff\xff\xff\x0f\x01",  # the largest field number
    b"\x00" * 8,
)


def request_bytes(method: Method, known: Known, chance: random.Random) -> tuple[str, bytes, Message | None]:
    """How a request was made, the request, and what it says, where it says something."""
    kind = chance.choices(list(_KINDS), list(_KINDS.values()))[0]
    message = valid_request(method, known, chance)
    most = max_message_bytes(method.service)
    if kind == "mutated":
        return kind, *_read(method, _mutated(message.SerializeToString(), method, chance))
    if kind == "random":
        return kind, *_read(method, chance.randbytes(chance.choice((0, 1, 2, 7, 30, 200, 4_000))))
    if kind == "oversize":
        return kind, b"\x0a" + chance.randbytes(most + chance.randrange(100)), None
    if kind in _NUM_HOSTILE:
        make_hostile(message, known, chance, num_fields=_NUM_HOSTILE[kind])
    payload = message.SerializeToString()
    return ("oversize", payload, None) if len(payload) > most else (kind, payload, message)


def max_message_bytes(service: str) -> int:
    return WORKER_MESSAGE_BYTES if service == VERIFIER else ROUTER_MESSAGE_BYTES


def _read(method: Method, payload: bytes) -> tuple[bytes, Message | None]:
    message = method.request()
    try:
        message.ParseFromString(payload)
    except Exception:  # of protobuf's own kinds, which differ by implementation
        return payload, None
    return payload, message


def _mutated(payload: bytes, method: Method, chance: random.Random) -> bytes:
    numbers = [field.number for field in method.request.DESCRIPTOR.fields] or [1]
    for _ in range(chance.randrange(1, 4)):
        at, number = chance.randrange(len(payload) + 1), chance.choice(numbers) % 16
        match chance.choice(_MUTATIONS):
            case "flip a bit" if at < len(payload):
                payload = payload[:at] + bytes([payload[at] ^ (1 << chance.randrange(8))]) + payload[at + 1 :]
            case "flip a bit" | "append what is odd":
                payload += chance.choice(_ODD_FIELDS)
            case "cut":
                payload = payload[:at]
            case "insert":
                payload = payload[:at] + chance.randbytes(chance.randrange(1, 5)) + payload[at:]
            case "twice":
                payload += payload
            case "a negative number":  # in one of its fields, of whatever type that is
                payload += bytes([number << 3]) + _NEGATIVE_VARINT
            case "another type":  # of one of its fields
                payload += bytes([number << 3 | chance.choice((0, 1, 2, 5))]) + chance.randbytes(chance.randrange(10))
    return payload


_UINT32 = (0, 1, 2, 127, 128, 65_535, 65_536, 65_537, 2**31 - 1, 2**31, 2**32 - 1)
_UINT64 = (*_UINT32, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 10**18)
_SIZES = (0.0, 1.0, 1e38, math.inf)
_FLOATS = (*_SIZES, *(-size for size in _SIZES), 1e-45, 5e-324, 1.0000001, 1e308, math.nan)
_ENUMS = (0, 1, 2, 3, 99, -1, 2**31 - 1, -(2**31))
_TEXTS = (
    *("", " ", "a", "0", "-1", "nan", "null", "*", "{}", ":", "bearer", "%s%n%x", "../../etc/passwd"),
    *("\x00", "a\x00b", "\r\n", "\x1b[2J", "\x7f", "a\nlevel=error", '{"level": "error"}'),
    *("\u202egnirts", "\u0000\ufffd\uffff", "\U0001f600" * 40, "é" * 128, "ß" * 129),
    *("{demo}", "kakeya:{demo}:workers", "kakeya:pools", "return redis.call('FLUSHALL')"),
    *("a|b|c", "|0000000000000000|", "fuzz.x.y.z", "FUZZ", "fuzz" * 16),
    *("a" * length for length in (64, 65, 128, 129, 256, 257, 5_000)),
    *("a." + "b" * 5_000, "127.0.0.1:0", "127.0.0.1:65536", "[::1]:1", "unix:/tmp/x", "dns:///localhost:1"),
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
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            _fill_map(getattr(message, field.name), field, known, chance)
        elif field.is_repeated:
            _fill_list(message, field, known, chance)
        elif field.message_type is not None:
            make_hostile(getattr(message, field.name), known, chance)
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, hostile_value(field, known, chance))


def _fill_map(entries: Any, field: Any, known: Known, chance: random.Random) -> None:
    key, value = field.message_type.fields
    for _ in range(chance.choice((0, 1, 3, 1_100))):
        name = hostile_value(key, known, chance) if chance.random() < 0.1 else chance.randrange(2_000)
        if key.cpp_type == Field.CPPTYPE_STRING:
            name = str(name)
        entries[name] = hostile_value(value, known, chance)


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
