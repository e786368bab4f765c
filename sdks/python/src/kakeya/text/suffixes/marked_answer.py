"""An answer that is exchanged for a marker: what a template writes behind it is what follows the marker."""

import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from kakeya.text.chat_template import Message
from kakeya.text.tool_calls import with_objects

_RUN = secrets.token_hex(8)  # no client's text foresees it
MARKERS: Final = (f"Kakeya{_RUN}", f"Kakeyaanother{_RUN}")
"""Neither is in the other. Letters and digits: templates trim a text, or write it in capitals or as JSON."""
_NAME = "kakeya"  # of an argument, where a call has none

Way = Callable[[Message, str], Message]
"""Puts a marker into an answer."""


def as_text(answer: Message, marker: str) -> Message:
    """With the marker as its text."""
    return {**answer, "content": marker}


def in_last_argument(answer: Message, marker: str) -> Message:
    """With the marker as the last argument of its last call, and all else as it was."""
    *calls, last = answer["tool_calls"]
    return {**answer, "tool_calls": [*calls, _marked_call(last, marker)]}


def has_calls(answer: Message) -> bool:
    """Whether it calls tools."""
    return bool(answer.get("tool_calls"))


def ways(answer: Message) -> tuple[Way, ...]:
    """How it may be marked, the best first. Some templates leave out calls; there the text is all of the answer."""
    return (in_last_argument, as_text) if has_calls(answer) else (as_text,)


def parted(rendered: str, meant: str, marker: str) -> tuple[str, str] | None:
    """What stands before a marker and behind it; None where the marker does not come out exactly once.

    Args:
        rendered: perhaps with stand-ins.
        meant: the same without.
    """
    places = list(re.finditer(marker, meant, re.IGNORECASE))
    if len(places) != 1:
        return None
    return rendered[: places[0].start()], rendered[places[0].end() :]


def _marked_call(call: Any, marker: str) -> Any:
    if not isinstance(call, Mapping):
        return call
    if isinstance(function := call.get("function"), Mapping):
        return {**call, "function": _marked_call(function, marker)}
    (decoded,) = with_objects({"tool_calls": [call]})["tool_calls"]
    found = decoded.get("arguments")
    arguments = dict(found) if isinstance(found, Mapping) else {}
    arguments[next(reversed(arguments), _NAME)] = marker
    is_text = isinstance(call.get("arguments"), str)
    return {**call, "arguments": json.dumps(arguments, ensure_ascii=False) if is_text else arguments}
