"""The bytes of a request: valid, hostile, mutated, random, or far too many."""

import random
from dataclasses import dataclass

from google.protobuf.message import Message

from tests.fuzz.hostile_values import make_hostile
from tests.fuzz.known import Known
from tests.fuzz.methods import VERIFIER, Method
from tests.fuzz.valid_requests import valid_request

ROUTER_MESSAGE_BYTES, WORKER_MESSAGE_BYTES = 1 << 20, 5 << 20
"""What the services are told to take: larger messages cost the fuzzer less than beyond their default."""

_KINDS = {
    "valid": 30,
    "one field": 32,
    "some fields": 10,
    "all fields": 8,
    "mutated": 13,
    "random": 6.9,
    "oversize": 0.1,
}
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


@dataclass(frozen=True)
class RequestBytes:
    """Attributes:
    kind: how it was made.
    message: what it says, where it says something.
    """

    kind: str
    payload: bytes
    message: Message | None


def request_bytes(method: Method, known: Known, chance: random.Random) -> RequestBytes:
    kind = chance.choices(list(_KINDS), list(_KINDS.values()))[0]
    message = valid_request(method, known, chance)
    match kind:
        case "one field":
            make_hostile(message, known, chance, num_fields=1)
        case "some fields":
            make_hostile(message, known, chance, num_fields=3)
        case "all fields":
            make_hostile(message, known, chance)
        case "mutated":
            return _parsed(method, kind, _mutated(message.SerializeToString(), method, chance))
        case "random":
            return _parsed(method, kind, chance.randbytes(chance.choice((0, 1, 2, 7, 30, 200, 4_000))))
        case "oversize":
            size = max_message_bytes(method.service) + chance.randrange(100)
            return RequestBytes(kind, b"\x0a" + chance.randbytes(size), None)
    payload = message.SerializeToString()
    if len(payload) > max_message_bytes(method.service):
        return RequestBytes("oversize", payload, None)
    return RequestBytes(kind, payload, message)


def max_message_bytes(service: str) -> int:
    return WORKER_MESSAGE_BYTES if service == VERIFIER else ROUTER_MESSAGE_BYTES


def _parsed(method: Method, kind: str, payload: bytes) -> RequestBytes:
    message = method.request()
    try:
        message.ParseFromString(payload)
    except Exception:  # of protobuf's own kinds, which differ by implementation
        return RequestBytes(kind, payload, None)
    return RequestBytes(kind, payload, message)


def _mutated(payload: bytes, method: Method, chance: random.Random) -> bytes:
    for _ in range(chance.randrange(1, 4)):
        payload = chance.choice(_MUTATIONS)(payload, method, chance)
    return payload


def _flip_bit(payload: bytes, method: Method, chance: random.Random) -> bytes:
    if not payload:
        return b"\x08"
    at = chance.randrange(len(payload))
    return payload[:at] + bytes([payload[at] ^ (1 << chance.randrange(8))]) + payload[at + 1 :]


def _cut(payload: bytes, method: Method, chance: random.Random) -> bytes:
    return payload[: chance.randrange(len(payload) + 1)]


def _insert(payload: bytes, method: Method, chance: random.Random) -> bytes:
    at = chance.randrange(len(payload) + 1)
    return payload[:at] + chance.randbytes(chance.randrange(1, 5)) + payload[at:]


def _twice(payload: bytes, method: Method, chance: random.Random) -> bytes:
    return payload + payload


def _append_odd(payload: bytes, method: Method, chance: random.Random) -> bytes:
    return payload + chance.choice(_ODD_FIELDS)


def _negative_number(payload: bytes, method: Method, chance: random.Random) -> bytes:
    """A negative varint in one of the message's fields, of whatever type it is."""
    numbers = [field.number for field in method.request.DESCRIPTOR.fields] or [1]
    return payload + bytes([chance.choice(numbers) % 16 << 3]) + _NEGATIVE_VARINT


def _retype(payload: bytes, method: Method, chance: random.Random) -> bytes:
    """A field under a wire type that is not its own."""
    number = chance.choice([field.number for field in method.request.DESCRIPTOR.fields] or [1]) % 16
    return payload + bytes([number << 3 | chance.choice((0, 1, 2, 5))]) + chance.randbytes(chance.randrange(10))


_MUTATIONS = (_flip_bit, _cut, _insert, _twice, _append_odd, _negative_number, _retype)
