"""Values in JSON's notation and in Python's, read into JSON's as they come."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kakeya_http_shim.tools.source import Cut, Malformed, Reading, Source

MAX_DEPTH = 64
"""Of values within values: .NET's default, the least among clients' JSON libraries. Deeper ones are no call's."""

SPACE = re.compile(r"[ \t\n\r]+")
_WORD = re.compile(r"[-+.0-9A-Za-z_]+")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_PLAIN = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]+") for quote in "\"'"}
_JSON_ESCAPES = '"\\/bfnrt'
_PYTHON_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_PYTHON_CODES = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Notation:
    """How values are written.

    Attributes:
        words: in JSON what these stand for.
        lists: what closes a list, by what opens it.
        has_last_commas: a comma may stand behind the last of several.
    """

    quotes: str
    words: Mapping[str, str]
    lists: Mapping[str, str]
    has_last_commas: bool


_JSON_WORDS = {"true": "true", "false": "false", "null": "null"}
JSON = Notation('"', _JSON_WORDS, {"[": "]"}, has_last_commas=False)
PYTHON = Notation(
    "\"'",
    _JSON_WORDS | {"True": "true", "False": "false", "None": "null"},
    {"[": "]", "(": ")"},
    has_last_commas=True,
)


def written(value: str) -> str:
    """A text in JSON."""
    return json.dumps(value, ensure_ascii=False)


def written_object(members: Mapping[str, str]) -> str:
    """The object that has these values, which are in JSON, in their order."""
    return "{" + ", ".join(f"{written(name)}: {value}" for name, value in members.items()) + "}"


def read_value(source: Source, notation: Notation) -> Reading[str]:
    """The value that follows, in JSON. What is JSON already stays as it was written.

    The one exception are control characters in texts, which JSON forbids and models write: they come out escaped.

    Raises:
        Malformed: it is none; or an object has a name twice, which clients read differently; or it is too deep.
        Cut: the text ends within it.
    """
    return (yield from _Values(source, notation).read())


def read_string(source: Source, notation: Notation) -> Reading[str]:
    """The text in quotes that follows, as `read_value` has it."""
    if (yield from source.need()) not in notation.quotes:
        raise Malformed
    quote = source.take()
    if notation is PYTHON:
        return (yield from _python_string(source, quote))
    return (yield from _json_string(source, quote))


def whole_value(text: str, notation: Notation) -> str | None:
    """The value that is all of this text, in JSON; None where it is none."""
    source = Source()
    source.feed(text)
    source.complete()
    try:
        value = _at_once(read_value(source, notation))
    except (Malformed, Cut):
        return None
    return None if _at_once(source.peek()) else value


def _at_once(reading: Reading[str]) -> str:
    """Of a source that is complete, so that it never waits."""
    ends: list[str] = []

    def reading_to_end() -> Reading[None]:
        ends.append((yield from reading))

    list(reading_to_end())
    return ends[0]


def _json_string(source: Source, quote: str) -> Reading[str]:
    pieces = [quote]
    while True:
        letter = yield from source.need()
        if letter == quote:
            pieces.append(source.take())
            return "".join(pieces)
        if letter == "\\":
            pieces.append(source.take() + (yield from _json_escape(source)))
        elif letter < " ":
            pieces.append(json.dumps(source.take())[1:-1])
        else:
            pieces.append(source.some(_PLAIN[quote]))


def _json_escape(source: Source) -> Reading[str]:
    letter = yield from source.need()
    if letter == "u":
        return source.take() + (yield from _hex(source, 4))
    if letter not in _JSON_ESCAPES:
        raise Malformed
    return source.take()


def _python_string(source: Source, quote: str) -> Reading[str]:
    pieces: list[str] = []
    while True:
        letter = yield from source.need()
        if letter == quote:
            source.take()
            return written("".join(pieces))
        if letter == "\\":
            source.take()
            pieces.append((yield from _python_escape(source)))
        elif letter < " ":
            pieces.append(source.take())
        else:
            pieces.append(source.some(_PLAIN[quote]))


def _python_escape(source: Source) -> Reading[str]:
    """The letter that is meant. Of what is no escape the backslash stays, as in Python."""
    yield from source.need()
    letter = source.take()
    if letter not in _PYTHON_CODES:
        return _PYTHON_ESCAPES.get(letter, "\\" + letter)
    code = int((yield from _hex(source, _PYTHON_CODES[letter])), 16)
    if code > 0x10FFFF:
        raise Malformed
    return chr(code)


def _hex(source: Source, num_digits: int) -> Reading[str]:
    digits = ""
    for _ in range(num_digits):
        letter = yield from source.need()
        if not _HEX.fullmatch(letter):
            raise Malformed
        digits += source.take()
    return digits


@dataclass(slots=True)
class _Open:
    """What is not closed yet: a list, or an object with the names it has so far."""

    closing: str
    names: set[str] = field(default_factory=set)

    @property
    def is_list(self) -> bool:
        return self.closing != "}"


class _Values:
    """Reads one value, with a stack of its own: recursion would be as deep as a model writes."""

    def __init__(self, source: Source, notation: Notation) -> None:
        self._source = source
        self._notation = notation
        self._pieces: list[str] = []
        self._open: list[_Open] = []
        self._last_comma: int | None = None  # its place among the pieces, until something follows it

    def read(self) -> Reading[str]:
        step: _Step | None = self._value
        while step:
            self._pieces.append((yield from self._source.run(SPACE)))
            step = yield from step()
        return "".join(self._pieces)

    def _value(self) -> Reading["_Step | None"]:
        letter = yield from self._source.need()
        self._last_comma = None
        if letter == "{":
            return self._opened("{", _Open("}"), self._first_name)
        if letter in self._notation.lists:
            return self._opened("[", _Open(self._notation.lists[letter]), self._first_value)
        if letter in self._notation.quotes:
            self._pieces.append((yield from read_string(self._source, self._notation)))
        else:
            self._pieces.append(self._known((yield from self._source.run(_WORD))))
        return self._after if self._open else None

    def _known(self, word: str) -> str:
        if word in self._notation.words:
            return self._notation.words[word]
        if _NUMBER.fullmatch(word):
            return word
        raise Malformed

    def _opened(self, piece: str, what: _Open, step: "_Step") -> "_Step":
        if len(self._open) == MAX_DEPTH:
            raise Malformed
        self._source.take()
        self._pieces.append(piece)
        self._open.append(what)
        return step

    def _closed(self) -> "_Step | None":
        self._source.take()
        if self._last_comma is not None:
            self._pieces[self._last_comma] = ""
            self._last_comma = None
        self._pieces.append("]" if self._open.pop().is_list else "}")
        return self._after if self._open else None

    def _first_value(self) -> Reading["_Step | None"]:
        is_empty = (yield from self._source.need()) == self._open[-1].closing
        return self._closed() if is_empty else (yield from self._value())

    def _first_name(self) -> Reading["_Step | None"]:
        is_empty = (yield from self._source.need()) == "}"
        return self._closed() if is_empty else (yield from self._name())

    def _name(self) -> Reading["_Step | None"]:
        name = yield from read_string(self._source, self._notation)
        self._last_comma = None
        names, value = self._open[-1].names, json.loads(name)
        if value in names:
            raise Malformed
        names.add(value)
        space = yield from self._source.run(SPACE)
        yield from self._source.expect(":")
        self._pieces.append(f"{name}{space}:")
        return self._value

    def _after(self) -> Reading["_Step | None"]:
        letter = yield from self._source.need()
        if letter == self._open[-1].closing:
            return self._closed()
        if letter != ",":
            raise Malformed
        self._pieces.append(self._source.take())
        is_list = self._open[-1].is_list
        if self._notation.has_last_commas:
            self._last_comma = len(self._pieces) - 1
            return self._first_value if is_list else self._first_name
        return self._value if is_list else self._name


_Step = Callable[[], Reading["_Step | None"]]
