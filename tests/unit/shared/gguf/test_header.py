"""Headers of GGUF files: what is read, and that one that lies costs nothing and is told in one line."""

import struct
import time
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from kakeya_shared.gguf import header
from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.header import Header
from kakeya_shared.gguf.metadata import Metadata
from tests.gguf_bytes import BOOL, F64, LIST, TEXT, U8, U64, Tensor, Typed, gguf, text, value

F32_TYPE, Q4_0_TYPE = 0, 2
ONE = Tensor("one", [3, 2], F32_TYPE, struct.pack("<6f", *range(6)))
BLOCKS = Tensor("blocks", [64], Q4_0_TYPE, bytes(36))


def read(content: bytes) -> Header:
    return header.read(memoryview(content))


def fault(content: bytes) -> str:
    with pytest.raises(GgufError) as raised:
        read(content)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_values_of_every_kind_are_read() -> None:
    entries = {
        "number": 7,
        "negative": Typed(-3, 11),
        "large": Typed(2**40, U64),
        "precise": Typed(0.1, F64),
        "flag": True,
        "text": "größer",
        "texts": ["a", "", "漢字"],
        "numbers": [1, -2],
        "bytes": Typed([1, 255], LIST, U8),
        "flags": Typed([True, False], LIST, BOOL),
    }
    metadata = read(gguf(entries)).metadata
    assert metadata.keys() == list(entries)
    assert metadata.integer("number") == 7
    assert metadata.number("precise", 1.0) == 0.1
    assert metadata.flag("flag", default=False)
    assert metadata.text("text") == "größer"
    assert list(metadata.texts("texts")) == ["a", "", "漢字"]
    assert metadata.numbers("numbers") == array("i", [1, -2])
    assert metadata.numbers("bytes") == array("B", [1, 255])
    assert metadata.numbers("flags") == array("B", [1, 0])
    assert [metadata.length(key) for key in ("texts", "numbers", "number", "none")] == [3, 2, 0, 0]
    assert "number" in metadata
    assert "none" not in metadata


def test_tensors_lie_where_the_header_says() -> None:
    content = gguf({"general.alignment": 64}, [ONE, BLOCKS], alignment=64)
    found = read(content).tensors
    one, blocks = found["one"], found["blocks"]
    assert (one.shape, one.type.name, one.num_bytes) == ((2, 3), "F32", 24)
    assert struct.unpack_from("<6f", content, one.start) == (0, 1, 2, 3, 4, 5)
    assert (blocks.shape, blocks.type.name, blocks.num_bytes) == ((64,), "Q4_0", 36)
    assert blocks.start == one.start + 64
    assert blocks.start + blocks.num_bytes == len(content)


def test_who_has_seen_enough_need_not_read_on() -> None:
    content = memoryview(gguf({"general.architecture": "llama", "rest": 1})[:-4])
    assert header.beginning(content, "rest").metadata.text("general.architecture") == "llama"
    with pytest.raises(GgufError, match="cut off"):
        header.beginning(content, "other")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"GGML" + bytes(30), "no GGUF file"),
        (b"GG", "no GGUF file"),
        (b"GGUF\x03", "cut off"),
        (gguf(version=1), "version 1 of the format; what can be read: 2 and 3"),
        (gguf(version=3 << 24), "big-endian"),
        (gguf(num_keys=2**63), "keys"),
        (gguf(num_tensors=header.MAX_TENSORS + 1), "tensors"),
        (gguf({"a": 1})[:-1], "cut off"),
        (gguf([("a", 1), ("a", 2)]), "says a twice"),
        (gguf([(b"\xff", 1)]), "a key is no UTF-8"),
        (gguf([("a\nb", 1)]), r"a key holds letters that do not print: 'a\\nb'"),
        (gguf([("a" * 70_000, 1)]), "a key has 70,000 bytes"),
        (gguf({"a": Typed(1, 13)}), "a holds values of type 13"),
        (gguf({"a": Typed([1], LIST, 13)}), "a holds values of type 13"),
        (gguf({"a": Typed([1], LIST, LIST)}), "a holds lists of lists"),
        (gguf(num_keys=1) + text("a") + struct.pack("<IQ", TEXT, 2**63), "a ends behind the end of the file"),
        (gguf(num_keys=1) + text("a") + struct.pack("<IIQ", LIST, U64, 2**61), "a ends behind the end of the file"),
        (gguf(num_keys=1) + text("a") + struct.pack("<IIQ", LIST, TEXT, 2**61), "no vocabulary has more"),
        (gguf(num_keys=1) + text("a") + struct.pack("<IIQQ", LIST, TEXT, 2, 2**63), "a ends behind the end"),
        (gguf(num_keys=1) + text("a") + struct.pack("<IIQ", LIST, TEXT, 2), "cut off"),
        (gguf({"general.alignment": 0}), "general.alignment must be a whole number"),
        (gguf({"general.alignment": 24}), "general.alignment must be a power of two, not 24"),
        (gguf(tensors=[ONE])[:-1], "tensor one ends behind the end of the file"),
        (gguf(tensors=[ONE, ONE]), "two tensors one"),
        (gguf(tensors=[Tensor("a", [], 0, b"")]), "tensor a has 0 dimensions"),
        (gguf(tensors=[Tensor("a", [1] * 5, 0, b"")]), "tensor a has 5 dimensions"),
        (gguf(tensors=[Tensor("a", [0, 4], 0, b"")]), r"cannot have the shape \(4, 0\)"),
        (gguf(tensors=[Tensor("a", [33], Q4_0_TYPE, bytes(36))]), "tensor a of type Q4_0 cannot have the shape"),
        (gguf(tensors=[Tensor("a", [2**32, 2**32], 0, b"")]), "tensor a ends behind the end"),
        (gguf(tensors=[Tensor("a", [1], 4, bytes(4))]), "type that is not known, number 4"),
        (gguf(tensors=[Tensor("a", [1], 0, bytes(64), offset=4)]), "begins at 4, which is no multiple of 32"),
        (gguf(tensors=[Tensor("a", [1], 0, bytes(4), offset=2**63)]), "tensor a ends behind the end"),
    ],
)
def test_a_header_that_cannot_be_is_told(content: bytes, reason: str) -> None:
    with pytest.raises(GgufError, match=reason):
        read(content)


def test_wherever_it_is_cut_off_it_is_told() -> None:
    content = gguf({"a": 1, "b": ["x", "yz"], "c": "text", "d": [1, 2]}, [ONE, BLOCKS])
    for end in range(len(content)):
        assert fault(content[:end])
    assert read(content)


def test_lies_take_no_memory_and_no_time() -> None:
    """A count that the file cannot hold is never believed."""
    lies = [
        gguf(num_keys=header.MAX_KEYS, num_tensors=header.MAX_TENSORS),
        gguf(num_keys=1) + text("a") + struct.pack("<IIQ", LIST, U64, 2**60) + bytes(64),
        gguf(num_keys=1) + text("a") + struct.pack("<IIQ", LIST, TEXT, header.MAX_TEXTS) + bytes(64),
        gguf(tensors=[Tensor("a", [2**40, 2**20], 0, b"")]),
    ]
    tracemalloc.start()
    started = time.monotonic()
    for lie in lies:
        fault(lie)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 1 << 20
    assert time.monotonic() - started < 60


def test_lists_of_texts_are_bounded_in_all() -> None:
    half = header.MAX_TEXTS // 2 + 1
    entry = struct.pack("<IIQ", LIST, TEXT, half) + bytes(8 * half)
    assert "no vocabulary has more" in fault(gguf(num_keys=2) + text("a") + entry + text("b") + entry)


def test_a_long_list_takes_no_memory_until_it_is_asked_for() -> None:
    content = gguf({"a": ["x"] * 50_000})
    tracemalloc.start()
    found = read(content)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < len(content) // 8
    assert sum(map(len, found.metadata.texts("a"))) == 50_000


@pytest.mark.parametrize(
    ("given", "ask", "reason"),
    [
        ({}, lambda said: said.integer("a"), "it does not say a"),
        ({"a": True}, lambda said: said.integer("a"), "a must be a whole number of at least 1, not True"),
        ({"a": 0}, lambda said: said.integer("a"), "not 0"),
        ({"a": "x"}, lambda said: said.integer("a"), "not a text"),
        ({"a": [1]}, lambda said: said.integer("a"), "not a list of numbers"),
        ({"a": True}, lambda said: said.number("a", 1.0), "a must be a positive number, not True"),
        ({"a": float("nan")}, lambda said: said.number("a", 1.0), "not nan"),
        ({"a": 1}, lambda said: said.flag("a", default=True), "a must be true or false, not 1"),
        ({"a": 1}, lambda said: said.text("a"), "a must be a text, not 1"),
        ({"a": b"\xff"}, lambda said: said.text("a"), "a holds a text that is no UTF-8"),
        ({"a": b"x" * (1 << 22) + b"y"}, lambda said: said.text("a"), "a has more than 4,194,304 bytes"),
        ({"a": ["x"]}, lambda said: said.numbers("a"), "a must be a list of numbers, not a list of texts"),
        ({"a": 1}, lambda said: next(said.texts("a")), "a must be a list of texts, not 1"),
        ({"a": [b"\xff"]}, lambda said: next(said.texts("a")), "a holds a text that is no UTF-8"),
    ],
)
def test_a_value_of_another_kind_is_told_by_its_key(
    given: dict[str, Any], ask: Callable[[Metadata], object], reason: str
) -> None:
    with pytest.raises(GgufError, match=reason):
        ask(read(gguf(given)).metadata)


def test_what_is_absent_is_what_the_caller_says() -> None:
    metadata = read(gguf()).metadata
    assert (metadata.integer("a", 3), metadata.number("a", 0.5), metadata.text("a")) == (3, 0.5, "")
    assert (metadata.flag("a", default=True), list(metadata.texts("a")), metadata.numbers("a")) == (True, [], None)


def test_the_writer_of_these_tests_writes_what_it_is_told() -> None:
    """Else the tests above would be of nothing."""
    assert value("ab") == struct.pack("<IQ", TEXT, 2) + b"ab"
    assert value([]) == struct.pack("<IIQ", LIST, TEXT, 0)
