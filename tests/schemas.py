"""JSON schemas as applications write them, drawn at random: the same for the same number, everywhere.

Texts have a longest length: a small model at temperature 1 seldom ends one by itself.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

Schema = dict[str, Any]

_NAMES = (
    "name",
    "age",
    "city",
    "kind",
    "tags",
    "notes",
    "items",
    "total",
    "when",
    "id",
    "unit",
    "email",
    "parent",
    "ok",
)
_PATTERNS = (r"^[a-z]{2,8}$", r"^[A-Z]{3}-[0-9]{4}$", r"^(red|green|blue)$", r"^#[0-9a-f]{6}$", r"^[0-9]{1,3}%$")
_FORMATS = ("date", "uuid", "ipv4")
_WORDS = ("cat", "dog", "low", "high", "red", "blue", "kg", "cm", "né", 'a "b"')


def schema(number: int) -> Schema:
    """One of endlessly many; each second one has something inside of something, enums, patterns and bounds."""
    draw = random.Random(number)
    if number % 2:
        return _object(draw, 2)
    fields = {name: draw.choice(_PLAIN)(draw) for name in draw.sample(_NAMES, draw.randint(1, 4))}
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


def _object(draw: random.Random, depth: int) -> Schema:
    names = draw.sample(_NAMES, draw.randint(2, 4))
    fields = {name: _value(draw, depth - 1) for name in names}
    required = [name for name in names if draw.random() < 0.8]
    made: Schema = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
    if depth == 2 and draw.random() < 0.3:
        made["$defs"] = {"part": _value(draw, 0)}
        made["properties"]["part"] = {"$ref": "#/$defs/part"}
    return made


def _value(draw: random.Random, depth: int) -> Schema:
    kinds: list[Callable[[random.Random], Schema]] = [*_BOUNDED]
    if depth > 0:
        kinds += [partial(inside, depth=depth) for inside in (_object, _array, _either)]
    return draw.choice(kinds)(draw)


def _array(draw: random.Random, depth: int) -> Schema:
    least = draw.randint(0, 2)
    items = _value(draw, depth - 1)
    return {"type": "array", "items": items, "minItems": least, "maxItems": least + draw.randint(1, 3)}


def _either(draw: random.Random, depth: int) -> Schema:
    return {"anyOf": [_value(draw, depth - 1), {"type": "null"}]}


def _enum(draw: random.Random) -> Schema:
    return {"enum": draw.sample([*_WORDS, 1, 2.5, True, None], draw.randint(1, 5))}


def _pattern(draw: random.Random) -> Schema:
    return {"type": "string", "pattern": draw.choice(_PATTERNS)}


def _format(draw: random.Random) -> Schema:
    return {"type": "string", "format": draw.choice(_FORMATS)}


def _text(draw: random.Random) -> Schema:
    least = draw.randint(0, 3)
    return {"type": "string", "minLength": least, "maxLength": least + draw.randint(1, 30)}


def _integer(draw: random.Random) -> Schema:
    least = draw.randint(-50, 50)
    return {"type": "integer", "minimum": least, "maximum": least + draw.randint(0, 1000)}


def _number(draw: random.Random) -> Schema:
    least = draw.randint(-5, 5)
    return {"type": "number", "minimum": least, "exclusiveMaximum": least + draw.randint(1, 9)}


def _multiple(draw: random.Random) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": 500, "multipleOf": draw.choice([2, 5, 10])}


_BOUNDED = (_enum, _pattern, _format, _text, _integer, _number, _multiple, lambda draw: {"const": draw.choice(_WORDS)})
_PLAIN: tuple[Callable[[random.Random], Schema], ...] = (
    lambda draw: {"type": "string", "maxLength": 80},
    lambda draw: {"type": "integer"},
    lambda draw: {"type": "number"},
    lambda draw: {"type": "boolean"},
    lambda draw: {"type": "array", "items": {"type": draw.choice(["integer", "boolean"])}, "maxItems": 20},
)
