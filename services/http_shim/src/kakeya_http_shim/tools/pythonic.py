"""Calls in Python's notation: `[name(key=value), ...]`."""

import re
from collections.abc import Container

from kakeya_http_shim.tools.source import Malformed, Reading, Source
from kakeya_http_shim.tools.syntax import Call
from kakeya_http_shim.tools.values import PYTHON, SPACE, read_value, written_object

_LETTERS = re.compile(r"[\w.\-]+")
_NAME = re.compile(r"[^\W\d][\w.\-]*")
"""A tool's: dots and hyphens are allowed in those."""

_KEY = re.compile(r"[^\W\d]\w*")


def read_calls(source: Source, names: Container[str] | None) -> Reading[list[Call]]:
    """The list of calls that follows.

    Args:
        names: that calls may have; None for any.

    Raises:
        Malformed: it is none, or empty.
        Cut: the text ends within it.
    """
    calls: list[Call] = []
    yield from source.expect("[")
    while True:
        yield from source.run(SPACE)
        if calls and (yield from source.need()) == "]":
            break
        calls.append((yield from _read_call(source, names)))
        yield from source.run(SPACE)
        if (yield from source.need()) == "]":
            break
        yield from source.expect(",")
    source.take()
    return calls


def _read_call(source: Source, names: Container[str] | None) -> Reading[Call]:
    name = yield from _read_word(source, _NAME)
    if (yield from source.need()) != "(" or (names is not None and name not in names):
        raise Malformed
    source.take()
    given: dict[str, str] = {}
    while True:
        yield from source.run(SPACE)
        if (yield from source.need()) == ")":
            break
        key = yield from _read_word(source, _KEY)
        yield from source.run(SPACE)
        yield from source.expect("=")
        yield from source.run(SPACE)
        if key in given:
            raise Malformed
        given[key] = yield from read_value(source, PYTHON)
        yield from source.run(SPACE)
        if (yield from source.need()) == ")":
            break
        yield from source.expect(",")
    source.take()
    return Call(name, written_object(given))


def _read_word(source: Source, pattern: re.Pattern[str]) -> Reading[str]:
    yield from source.need()
    word = yield from source.run(_LETTERS)
    yield from source.need()
    if not pattern.fullmatch(word):
        raise Malformed
    return word
