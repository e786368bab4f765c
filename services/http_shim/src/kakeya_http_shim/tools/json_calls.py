"""Calls that are JSON objects with a name and arguments."""

import json
from collections.abc import Container, Mapping

from kakeya_http_shim.tools.source import Malformed, Reading, Source
from kakeya_http_shim.tools.syntax import Call
from kakeya_http_shim.tools.values import JSON, SPACE, read_string, read_value, whole_value

CALL_KEYS = frozenset({"name", "arguments", "parameters", "type", "id"})
_ARGUMENTS = ("arguments", "parameters")


class _All:
    def __contains__(self, _key: object) -> bool:
        return True


def read_call(source: Source, keys: Container[str] | None = None) -> Reading[Call]:
    """The call that is the JSON object that follows.

    Without arguments it is one without any; a text as arguments is read as the JSON that it holds.

    Args:
        keys: all that it may have; None for any.

    Raises:
        Malformed: it is none.
        Cut: the text ends within it.
    """
    return call_of((yield from _members(source, _All() if keys is None else keys)))


def call_of(members: Mapping[str, str]) -> Call:
    """The call of an object with these values, in JSON, by their keys.

    Raises:
        Malformed: it has no name, or no object as arguments.
    """
    given = [members[key] for key in _ARGUMENTS if key in members]
    name = _text(members.get("name", ""))
    if not name or len(given) > 1:
        raise Malformed
    arguments = given[0] if given else "{}"
    if arguments == "null":
        arguments = "{}"
    if arguments.startswith('"'):
        arguments = whole_value(json.loads(arguments), JSON) or ""
    if not arguments.startswith("{"):
        raise Malformed
    return Call(name, arguments, _text(members.get("id", "")))


def _text(value: str) -> str | None:
    return str(json.loads(value)) if value.startswith('"') else None


def _members(source: Source, keys: Container[str]) -> Reading[dict[str, str]]:
    members: dict[str, str] = {}
    yield from source.expect("{")
    yield from source.run(SPACE)
    while True:
        key = json.loads((yield from read_string(source, JSON)))
        if key in members or key not in keys:
            raise Malformed
        yield from source.run(SPACE)
        yield from source.expect(":")
        yield from source.run(SPACE)
        members[key] = yield from read_value(source, JSON)
        yield from source.run(SPACE)
        if (yield from source.need()) == "}":
            source.take()
            return members
        yield from source.expect(",")
        yield from source.run(SPACE)
