"""What one request may ask for; whatever is beyond, or hostile, is INVALID_ARGUMENT or NOT_FOUND, never INTERNAL."""

import math
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from kakeya_shared.errors.tree import (
    AppendTooLong,
    EmptyHistory,
    HistoryFull,
    HistoryLengthMismatch,
    InvalidField,
    KakeyaError,
    NoWorker,
)
from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import registry_pb2
from tests.unit.router.fake_worker import EVERY_FEATURE, FakeWorker
from tests.unit.router.stack import Client, Stack, answer


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"client_label": "é" * 129}, "client_label"),
        ({"client_label": "a\0b"}, "client_label"),
        ({"client_label": "two\nlines"}, "client_label"),
        ({"client_label": "two\u2029lines"}, "client_label"),
        ({"client_label": "\x1b]0;mine\x07"}, "client_label"),
        ({"client_label": "\x85"}, "client_label"),
        ({"client_label": "\u202etxet\u202c"}, "client_label"),
        ({"client_label": "lap\u200btop"}, "client_label"),
        ({"request_id": "r" * 129}, "request_id"),
        ({"request_id": "r\r"}, "request_id"),
        ({"model": "m" * 257}, "model"),
        ({"model": "Tiny\0"}, "model"),
        ({"fingerprint": "f" * 129}, "fingerprint"),
        ({"fingerprint": "f\x7f"}, "fingerprint"),
        ({"eos_token_ids": [1] * 1025}, "eos_token_ids"),
        ({"ttl_seconds": 0}, "ttl_seconds"),
        ({"ttl_seconds": 365 * 86_400 + 1}, "ttl_seconds"),
        ({"ttl_seconds": (1 << 32) - 1}, "ttl_seconds"),
        ({"on_overflow": 77}, "on_overflow"),
    ],
)
async def test_a_session_that_may_not_be_asked_for(
    client: Client, worker: FakeWorker, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidField) as raised:
        await client.create(**fields)
    assert raised.value.metadata["field"] == field
    assert not worker.calls["OpenSession"]


async def test_the_most_that_may_be_asked_for(client: Client, worker: FakeWorker) -> None:
    created = await client.create(
        client_label="é" * 128,
        request_id="é" * 64,
        eos_token_ids=[id_ % 1000 for id_ in range(1024)],
        ttl_seconds=365 * 86_400,
        model="Tiny",
        fingerprint=worker.fingerprint,
    )
    assert (await client.append(created.session_id, [1])).history_length == 1


@pytest.mark.parametrize("size", [0, 5])
async def test_how_long_a_label_may_be_is_the_operators_to_say(stack: Stack, size: int) -> None:
    client = await stack.router(max_label_bytes=size)
    await stack.worker(client)
    await client.session(client_label="x" * size)
    with pytest.raises(InvalidField, match=f"longer than {size} bytes"):
        await client.session(client_label="x" * (size + 1))


async def test_how_long_an_append_may_be(stack: Stack) -> None:
    client = await stack.router(max_append_tokens=5)
    await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, range(5))
    with pytest.raises(AppendTooLong) as raised:
        await client.append(session_id, range(6))
    assert raised.value.metadata == {"max_append_tokens": "5"}


async def test_how_much_a_generate_may_ask_for(stack: Stack) -> None:
    client = await stack.router(max_generate_tokens=5)
    await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, [1])
    assert (await client.generate(session_id, 5))[-1].done.stop_reason == api.STOP_REASON_MAX_TOKENS
    for max_tokens in (6, (1 << 32) - 1):
        with pytest.raises(InvalidField, match="at most 5") as raised:
            await client.generate(session_id, max_tokens)
        assert raised.value.metadata["field"] == "max_tokens"
    assert (await client.info(session_id)).history_length == 6


async def _short(stack: Stack, length: int = 0) -> tuple[Client, str]:
    """A session whose history may have 10 tokens, and has `length`."""
    client = await stack.router(max_history_tokens=10)
    await stack.worker(client)
    session_id = await client.session()
    if length:
        await client.append(session_id, range(length))
    return client, session_id


async def test_an_append_beyond_the_longest_history_is_refused_and_changes_nothing(stack: Stack) -> None:
    client, session_id = await _short(stack, 7)
    with pytest.raises(HistoryFull) as raised:
        await client.append(session_id, range(4))
    assert raised.value.metadata == {"room": "3"}
    assert (await client.append(session_id, range(3))).history_length == 10
    with pytest.raises(HistoryFull) as raised:
        await client.append(session_id, [1])
    assert raised.value.metadata == {"room": "0"}
    assert (await client.append(session_id, [])).history_length == 10


async def test_a_repeated_append_is_answered_although_the_history_is_full(stack: Stack) -> None:
    client, session_id = await _short(stack, 7)
    for _ in range(2):
        assert (await client.append(session_id, [1, 2, 3], expected_history_length=7)).history_length == 10
    with pytest.raises(HistoryLengthMismatch):
        await client.append(session_id, [1, 2, 4], expected_history_length=7)


async def test_a_generate_ends_where_the_history_may_not_grow(stack: Stack) -> None:
    client, session_id = await _short(stack, 7)
    *tokens, last = await client.generate(session_id, 4)
    assert (len(tokens), last.done.generated_token_count) == (3, 3)
    assert (last.done.stop_reason, last.done.history_length) == (api.STOP_REASON_TRUNCATED, 10)
    with pytest.raises(HistoryFull) as raised:
        await client.generate(session_id, 1)
    assert raised.value.metadata == {"room": "0"}


async def test_the_least_number_of_tokens_is_capped_with_the_most(stack: Stack) -> None:
    client = await stack.router(max_history_tokens=10)
    worker = await stack.worker(client, features=EVERY_FEATURE)
    session_id = await client.session()
    await client.append(session_id, range(7))
    *tokens, last = await client.generate(session_id, 6, min_tokens=5)
    assert (len(tokens), last.done.stop_reason) == (3, api.STOP_REASON_TRUNCATED)
    assert [(request.max_tokens, request.min_tokens) for request in worker.generating] == [(3, 3)]


async def test_a_generate_that_just_fits_ends_by_itself(stack: Stack) -> None:
    client, session_id = await _short(stack, 7)
    assert (await client.generate(session_id, 3))[-1].done.stop_reason == api.STOP_REASON_MAX_TOKENS


async def test_a_generate_that_is_capped_may_still_end_for_its_own_reasons(stack: Stack) -> None:
    client = await stack.router(max_history_tokens=10)
    worker = await stack.worker(client)
    session_id = await client.session(eos_token_ids=[7])
    await client.append(session_id, range(7))
    worker.eos_after = 8
    assert (await client.generate(session_id, 100))[-1].done.stop_reason == api.STOP_REASON_EOS


async def test_an_empty_history_is_what_a_generate_lacks_first(stack: Stack) -> None:
    client, session_id = await _short(stack)
    with pytest.raises(EmptyHistory):
        await client.generate(session_id, 1)


# Values that upset somebody: numbers at the edges of their types, and text that means something to somebody.
NUMBERS: dict[int, list[Any]] = {
    FieldDescriptor.TYPE_UINT32: [0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1],
    FieldDescriptor.TYPE_UINT64: [0, 1, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
    FieldDescriptor.TYPE_FLOAT: [0.0, -0.0, 1e-45, 3e38, -3e38, math.inf, -math.inf, math.nan],
    FieldDescriptor.TYPE_DOUBLE: [0.0, 1e308, -1e308, math.inf, math.nan],
    FieldDescriptor.TYPE_BOOL: [False, True],
    FieldDescriptor.TYPE_BYTES: [b"", b"|" * 32, bytes(32), b"\xff" * 32, bytes(33)],
    FieldDescriptor.TYPE_ENUM: [0, 1, 2, 77, -1, (1 << 31) - 1],
}
TEXTS = [
    "",
    "\0",
    "a|b",
    "}{",
    "*",
    "tiny",
    "tiny.x",
    "a\r\nb",
    "\u202e",
    "é" * 300,
    "😀",
    "%s%n",
    "0",
    "-1",
    "x" * 5000,
]
ANSWERS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def _value(field: FieldDescriptor, dice: random.Random, known: dict[str, str], make: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _hostile(make(field.message_type), dice, known, make)
    if field.type == FieldDescriptor.TYPE_STRING:
        return known[field.name] if field.name in known and dice.random() < 0.7 else dice.choice(TEXTS)
    return dice.choice(NUMBERS[field.type])


def _hostile(message: Any, dice: random.Random, known: dict[str, str], make: Any) -> Any:
    """Fills some fields; `known` are texts that are somebody's, by the name of their field."""
    for field in message.DESCRIPTOR.fields:
        if dice.random() < 0.4 and field.name not in known:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries = getattr(message, field.name)
            for _ in range(dice.choice([1, 3])):
                entries[dice.choice(NUMBERS[FieldDescriptor.TYPE_UINT32])] = dice.choice(
                    NUMBERS[FieldDescriptor.TYPE_FLOAT]
                )
        elif field.is_repeated:
            values = [_value(field, dice, known, make) for _ in range(dice.choice([1, 3, 70]))]
            getattr(message, field.name).extend(values)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(message, field.name).CopyFrom(_value(field, dice, known, make))
        else:
            setattr(message, field.name, _value(field, dice, known, make))
    return message


def _maker(module: Any) -> Any:
    def make(descriptor: Any) -> Message:
        names = descriptor.full_name.removeprefix(module.DESCRIPTOR.package + ".").split(".")
        kind = module
        for name in names:
            kind = getattr(kind, name)
        return kind()

    return make


@pytest.mark.parametrize(
    ("module", "name"),
    [(api, "RuntimeService"), (registry_pb2, "RegistryService"), (admin_pb2, "AdminService")],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_no_request_is_internal(stack: Stack, module: Any, name: str) -> None:
    client = await stack.router(max_generate_tokens=50, max_append_tokens=100)
    worker = await stack.worker(client, num_lanes=64)
    session_id = await client.session()
    await client.append(session_id, [1])
    known = {"session_id": session_id, "pool": "tiny", "incarnation": worker.incarnation, "worker_id": "worker-a"}
    service = module.DESCRIPTOR.services_by_name[name]
    stub = {"RuntimeService": client.runtime, "RegistryService": client.registry, "AdminService": client.admin}[name]
    make, dice = _maker(module), random.Random(7)
    for method in service.methods:
        for _ in range(60):
            request = _hostile(make(method.input_type), dice, known, make)
            if name == "RegistryService" and method.name == "Join":
                request.contract_version = 1
            call = getattr(stub, method.name)(_one(request) if method.client_streaming else request)
            try:
                await answer(_drained(call, method.name) if method.server_streaming else call)
            except KakeyaError as error:
                allowed = error.status in ANSWERS or isinstance(error, NoWorker)  # that model is served by nobody
                assert allowed, (method.name, request, error)


async def _one(request: Message) -> AsyncIterator[Message]:
    yield request


async def _drained(call: Any, method: str) -> None:
    async for _ in call:
        if method == "Watch":  # which has no end
            call.cancel()
            return
