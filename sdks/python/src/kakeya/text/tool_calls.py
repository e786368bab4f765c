"""The calls of tools in a history, as chat templates take them."""

import json
import math
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
_MAX_DEPTH = 64
"""Of an argument's lists and objects: templates write them by recursion."""


def with_objects(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message, with the arguments of its calls as objects where they are such in a text.

    OpenAI's API has a text there, and templates have `tojson` or `items`, which take an object.
    """
    changed = dict(message)
    if isinstance(calls := message.get("tool_calls"), list):
        changed["tool_calls"] = [_decoded_call(call) for call in calls]
    if "function_call" in message:  # as it was said before there were several at once
        changed["function_call"] = _decoded_call(message["function_call"])
    return changed


def with_short_ids(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message, with nine letters and digits in place of ids of another form; the same ones for the same id."""
    changed = dict(message)
    if isinstance(id_ := message.get("tool_call_id"), str):
        changed["tool_call_id"] = _short(id_)
    if isinstance(calls := message.get("tool_calls"), list):
        changed["tool_calls"] = [_with_short_id(call) for call in calls]
    return changed


def _with_short_id(call: Any) -> Any:
    if not isinstance(call, Mapping) or not isinstance(id_ := call.get("id"), str):
        return call
    return {**call, "id": _short(id_)}


def _short(id_: str) -> str:
    if _SHORT_ID.fullmatch(id_):
        return id_
    return sha256(id_.encode(errors="surrogatepass")).hexdigest()[:9]


def _decoded_call(call: Any) -> Any:
    if not isinstance(call, Mapping):
        return call
    changed = dict(call)
    if "function" in call:
        changed["function"] = _decoded_call(call["function"])
    if "arguments" in call:  # of the function, or of a call that is written without one around it
        changed["arguments"] = _decoded(call["arguments"])
    return changed


def _decoded(arguments: Any) -> Any:
    """The JSON object that a text is. All else stays as it is, and so does what would not come out again as it was."""
    if not isinstance(arguments, str):
        return arguments
    try:
        decoded = json.loads(arguments, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except (ValueError, RecursionError):
        return arguments
    return decoded if isinstance(decoded, dict) and _depth(decoded) <= _MAX_DEPTH else arguments


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond 64 bits")
    return number


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
    return depth
