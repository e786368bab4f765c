"""Server-sent events, however their bytes come."""

import random

import pytest

from kakeya.bench.compare.events import Events

STREAM = (
    b": a comment\r\n\r\n"
    b"event: token\ndata: one\n\n"
    b"data:two\r\r"
    b"data: three\r\ndata: lines\ndata\ndata:\r\n\r\n"
    b"id: 7\nretry: 5\n\n"
    b"data:  \xe2\x80\xa8 is no end of a line, neither are \x0b\x0c\x1c\xc2\x85\n\n"
    b"data: never ended"
)
FOUND = [
    b"one",
    b"two",
    b"three\nlines\n\n",
    b" \xe2\x80\xa8 is no end of a line, neither are \x0b\x0c\x1c\xc2\x85",
]


def found(pieces: list[bytes]) -> list[bytes]:
    events = Events()
    return [data for piece in pieces for data in events.feed(piece)]


def test_whole() -> None:
    assert found([STREAM]) == FOUND


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_in_pieces_of_one_length(length: int) -> None:
    assert found([STREAM[place : place + length] for place in range(0, len(STREAM), length)]) == FOUND


def test_in_pieces_of_any_length() -> None:
    draw = random.Random(0)
    for _ in range(200):
        cuts = sorted(draw.randrange(len(STREAM) + 1) for _ in range(draw.randrange(12)))
        pieces = [STREAM[start:end] for start, end in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
        assert found(pieces) == FOUND, pieces


def test_an_event_is_told_as_soon_as_its_last_byte_is_there() -> None:
    events = Events()
    assert list(events.feed(b"data: one\r\n")) == []
    assert list(events.feed(b"\r")) == [b"one"]
    assert list(events.feed(b"\n")) == []
    assert list(events.feed(b"data: two\n\n")) == [b"two"]
