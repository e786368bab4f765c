"""The values of arguments that are written without a notation, by the tool's JSON schema."""

import re
from collections.abc import Mapping
from typing import Any

from kakeya_http_shim.tools.values import JSON, PYTHON, whole_value, written

_MAX_HOPS = 16
"""References and compositions one within another; a schema may refer to itself."""

_KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}
_HINTS = {"properties": "object", "additionalProperties": "object", "items": "array", "prefixItems": "array"}

_TEXT_ONLY = frozenset({"string"})

_FRACTION = re.compile("[.eE]")

Types = frozenset[str] | None
"""Names of JSON's types; None where any will do."""


def typed(text: str, types: Types) -> str:
    """The value that this text is meant as, in JSON.

    A text that may only be a string is one, as it stands. Else what is JSON of such a type stays as it was written;
    what is Python (`True`, `None`, `{'a': 1}`) of such a type is translated; the rest is a string, so that the tool can
    say what is wrong with it.
    """
    if types == _TEXT_ONLY:
        return written(text)
    bare = text.strip()
    value = whole_value(bare, JSON)
    if value is not None and _kind(value) != "string" and _is_one_of(value, types):
        return value
    if types is not None:
        value = whole_value(bare, PYTHON)
        if value is not None and _kind(value) != "string" and _is_one_of(value, types):
            return value
    return written(text)


def types_of_argument(name: str, parameters: Mapping[str, Any]) -> Types:
    """What the schema of all arguments says of this one."""
    properties = parameters.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return _types(properties[name], parameters, _MAX_HOPS)
    return _types(parameters.get("additionalProperties"), parameters, _MAX_HOPS)


def alternatives(schema: Any, root: Mapping[str, Any], hops: int = _MAX_HOPS) -> list[Any]:
    """The schemas of which a value has to be of one: without references, each of one type where it says any.

    Args:
        root: has what is referred to.
    """
    if not isinstance(schema, Mapping) or not hops:
        return [schema]
    for key in ("$ref", "anyOf", "oneOf", "allOf"):
        given = [_referred(schema[key], root)] if key == "$ref" and key in schema else schema.get(key)
        if isinstance(given, list) and (key != "allOf" or len(given) == 1):
            beside = {name: each for name, each in schema.items() if name != key}
            merged = [{**beside, **branch} if isinstance(branch, Mapping) else branch for branch in given]
            return [each for branch in merged for each in alternatives(branch, root, hops - 1)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": kind} for kind in schema["type"]]
    return [schema]


def known_arguments(parameters: Mapping[str, Any]) -> frozenset[str]:
    """The names that the schema of all arguments has."""
    properties = parameters.get("properties")
    return frozenset(properties) if isinstance(properties, Mapping) else frozenset()


def _kind(value: str) -> str:
    return _KINDS.get(value[0], "number")


def _is_one_of(value: str, types: Types) -> bool:
    kind = _kind(value)
    if types is None or kind in types:
        return True
    # What is no integer is a text, where that will do.
    return kind == "number" and "integer" in types and ("string" not in types or not _FRACTION.search(value))


def _types(schema: Any, root: Mapping[str, Any], hops: int) -> Types:
    if not isinstance(schema, Mapping) or not hops:
        return None
    given = schema.get("type")
    if isinstance(given, str):
        return frozenset({given})
    if isinstance(given, list):
        return frozenset(name for name in given if isinstance(name, str)) or None
    if "$ref" in schema:
        return _types(_referred(schema["$ref"], root), root, hops - 1)
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return frozenset(map(type_of, values)) or None
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return _union([_types(branch, root, hops - 1) for branch in schema[key]])
    if isinstance(schema.get("allOf"), list):
        return _intersection([_types(branch, root, hops - 1) for branch in schema["allOf"]])
    return next((frozenset({kind}) for hint, kind in _HINTS.items() if hint in schema), None)


def _union(branches: list[Types]) -> Types:
    known = [types for types in branches if types is not None]
    return frozenset().union(*known) if known and len(known) == len(branches) else None


def _intersection(branches: list[Types]) -> Types:
    known = [types for types in branches if types is not None]
    return frozenset.intersection(*known) or None if known else None


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    """Within the schema of all arguments; None where nothing is there."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    place: Any = root
    for part in reference[2:].split("/"):
        if not isinstance(place, Mapping):
            return None
        place = place.get(part.replace("~1", "/").replace("~0", "~"))
    return place


def type_of(value: Any) -> str:
    """JSON's name of it; of whole numbers, too, "number"."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
