"""What is compared of a message where a conversation is sent again: its fingerprint.

What a client says counts as it was sent. What the model said comes back from clients that trim it, cut it into parts,
break up what spells a control token, or write the arguments of its calls anew; its text is ours, so that does no harm,
and is forgiven. Nothing else is.
"""

import json
import re
from hashlib import blake2b
from typing import Any

from kakeya_http_shim.requests.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

_KIND, _OF_TEXT = b"kakeya message", b"kakeya text"
_NEVER_COMPARED = frozenset({"cache_control"})
_BESIDE_CONTENT = _NEVER_COMPARED | {"content"}
_BESIDE_ANSWER = _BESIDE_CONTENT | {"reasoning_content", "tool_calls", "unfinished_call", "provider_specific_fields"}
_NUMBER = ""
"""Names a number in a JSON value; the names of its objects get a letter in front, so that none is like it."""

_JSON = json.JSONEncoder(sort_keys=True)

_OF_TEXT_ALONE = frozenset({"role", "content"})
"""The fields of a message that is a text and no more, as nearly all are: JSON would take six times as long."""

_BREAK = re.compile("(?<=[<\\[\\]])[\u200b-\u200d\u2060\ufeff]")
"""What pydantic-ai puts into `<|im_end|>` or `[INST]`, so that no server reads a control token there."""

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
"""As contents have it where the server does not split it off, or a client puts it there."""

_OUR_ID = re.compile(r"[A-Za-z0-9]{9}")
"""Of a call that the model made. Some chat templates take no other."""


def fingerprint(message: Message) -> bytes:
    """32 bytes: equal where messages count as the same, and different, but for a broken hash, where they do not.

    A text and one part with that text are the same. `cache_control` does not count anywhere. Of what the model said
    white space around it does not count either, nor whether it comes as null, as an empty text or as none, nor its
    cutting into parts, nor what it thought, in a field or before its answer, nor a character without width behind an
    angle bracket or a square one. The arguments of a call count by their JSON value where its id has the form of ours.
    """
    text = _text_alone(message)
    if text is not None:
        return _of_text(message.role, text)
    compared = _said_by_model(message) if isinstance(message, AssistantMessage) else _as_sent(message)
    if compared.keys() == _OF_TEXT_ALONE and isinstance(compared["content"], str):
        return _of_text(message.role, compared["content"])
    # JSON is unambiguous, and escaped it has bytes for halves of characters, too.
    return blake2b(_JSON.encode(compared).encode(), digest_size=32, person=_KIND).digest()


def _text_alone(message: Message) -> str | None:
    """What is compared of a message that came with a role and a text and no more; None of any other."""
    if not (message.model_fields_set <= _OF_TEXT_ALONE and isinstance(message.content, str)):
        return None
    return _text(message).strip() if isinstance(message, AssistantMessage) else message.content


def _of_text(role: str, text: str) -> bytes:
    return blake2b(f"{role}\0{text}".encode("utf-8", "surrogatepass"), digest_size=32, person=_OF_TEXT).digest()


def _as_sent(message: SystemMessage | UserMessage | ToolMessage) -> dict[str, Any]:
    compared = _all_but(message, _BESIDE_CONTENT)
    compared["content"] = _content(message.content)
    return compared


def _content(content: str | list[TextPart]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    if len(content) == 1:
        return content[0].text
    return [part.model_dump(exclude=set(_NEVER_COMPARED), exclude_none=True) for part in content]


def _said_by_model(message: AssistantMessage) -> dict[str, Any]:
    compared = _all_but(message, _BESIDE_ANSWER)
    compared["content"] = _text(message).strip()
    if message.tool_calls:
        compared["tool_calls"] = [_call(call) for call in message.tool_calls]
    return compared


def _all_but(message: Message, left_out: frozenset[str]) -> dict[str, Any]:
    """By exclusion: a field that messages get one day counts until it is said that it does not. All are texts."""
    return {name: value for name, value in vars(message).items() if value is not None and name not in left_out}


def _text(message: AssistantMessage) -> str:
    """Without its thought."""
    if message.content is None or isinstance(message.content, str):
        text = message.content or ""
    else:
        text = "".join(part.text if isinstance(part, TextPart) else part.refusal for part in message.content)
    if not text.isascii():
        text = _BREAK.sub("", text)
    thought = _THOUGHT.match(text)
    return text[thought.end() :] if thought else text


def _call(call: ToolCall) -> dict[str, Any]:
    given = call.model_dump(exclude={"index"}, exclude_none=True)
    arguments = given["function"].pop("arguments")
    given["function"].pop("parsed_arguments", None)
    is_ours = _OUR_ID.fullmatch(call.id) is not None
    return given | (_by_value(arguments) if is_ours else {"arguments": arguments})


def _by_value(arguments: str) -> dict[str, Any]:
    """What is no JSON, or has no one value, counts as it was sent."""
    try:
        given = json.loads(
            arguments, object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
        )
        value = _BREAK.sub("", json.dumps(given, sort_keys=True, ensure_ascii=False))
    except (ValueError, RecursionError):
        return {"arguments": arguments}
    return {"value": value}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = {f".{_BREAK.sub('', name)}": value for name, value in pairs}
    if len(named) < len(pairs):
        raise ValueError("a name comes twice")
    return named


def _number(digits: str) -> dict[str, str]:
    """1, 1.0 and 10e-1 are one number, to the last digit: floats would take different ones for the same.

    Raises:
        ValueError: the exponent has thousands of digits.
    """
    mantissa, _, exponent = digits.lower().partition("e")
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    significant = (whole + fraction).rstrip("0")
    power = int(exponent or 0) + len(whole) - len(significant)
    significant = significant.lstrip("0")
    sign = "-" if mantissa.startswith("-") else ""
    return {_NUMBER: f"{sign}{significant}e{power}" if significant else "0"}


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
