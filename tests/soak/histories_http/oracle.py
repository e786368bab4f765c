"""What a session's tokens say, read back by the markers of kakeya-nano's chat template, held against what was sent.

It knows nothing of how a session is found, and uses the tokenizer itself, without anything of Kakeya's.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from tokenizers import Tokenizer

from kakeya_shared import installed_models
from tests.integration.open_http import MODEL

_ENDS_TEXT, _BEGINS, _ENDS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_RESULT, _ENDS_RESULT = "<tool_response>", "</tool_response>"
_CONTROL = (_ENDS_TEXT, _BEGINS, _ENDS, "<tool_call>", "</tool_call>", _RESULT, _ENDS_RESULT)
_CALL = re.compile(r"\n?<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_MAX_SHOWN = 120


class Unreadable(Exception):
    """Tokens that the template does not write; the message says where."""


@dataclass(frozen=True)
class Said:
    """One message.

    Attributes:
        text: without outer white space where it is the model's: clients trim that.
        calls: names and arguments, by their JSON value.
    """

    role: str
    text: str
    calls: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.role} {self.text!r} {self.calls or ''}"[:_MAX_SHOWN]


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(installed_models.directory(MODEL) / "tokenizer.json"))


@cache
def _control_ids() -> Mapping[int | None, str]:
    return {tokenizer().token_to_id(content): content for content in _CONTROL}


def text_of(token_ids: Sequence[int]) -> str:
    """As clients are told it: without the tokens that only mark something."""
    return str(tokenizer().decode(list(token_ids), skip_special_tokens=True))


def difference(messages: Sequence[Mapping[str, Any]], token_ids: Sequence[int]) -> str:
    """In what a history differs from the messages that were sent, up to where the answer begins; empty: in nothing."""
    wanted = sent(messages)
    try:
        found = read(token_ids, [bool(each.calls) for each in wanted])
    except Unreadable as error:
        return f"{error} in {tokenizer().decode(list(token_ids), skip_special_tokens=False)[-_MAX_SHOWN:]!r}"
    for number, (each, due) in enumerate(zip(found, wanted, strict=False)):
        if each != due:
            return f"message {number} is {each}, and was sent as {due}"
    return "" if len(found) == len(wanted) else f"it has {len(found)} messages, and {len(wanted)} were sent"


def sent(messages: Sequence[Mapping[str, Any]]) -> list[Said]:
    """What the template is to show of messages as OpenAI's API has them."""
    return [_sent(message) for message in messages]


def _sent(message: Mapping[str, Any]) -> Said:
    role, content = message["role"], message.get("content") or message.get("refusal") or ""
    if not isinstance(content, str):
        content = "".join(part["refusal" if part["type"] == "refusal" else "text"] for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    written = [_value({"name": call["name"], "arguments": json.loads(call["arguments"])}) for call in calls]
    return _said("system" if role == "developer" else role, content, written)


def _said(role: str, text: str, calls: Sequence[Any] = ()) -> Said:
    text = unicodedata.normalize("NFC", text)  # as the tokenizer does
    return Said(role, text.strip() if role == "assistant" else text, tuple(calls))


def _value(value: Any) -> Any:
    """Comparable: numbers by their value, objects whatever their order; true is not 1."""
    if isinstance(value, dict):
        return frozenset((name, _value(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(map(_value, value))
    return (type(None), value) if isinstance(value, bool) else value


def read(token_ids: Sequence[int], calls: Sequence[bool]) -> list[Said]:
    """The messages of a history that ends where an answer begins.

    Args:
        calls: of which messages what looks like calls of tools is such.

    Raises:
        Unreadable: the template writes no such tokens.
    """
    *blocks, opening = _blocks(token_ids)
    if _written(opening) != "assistant\n":
        raise Unreadable("it does not end with the beginning of an answer")
    found: list[Said] = []
    for block in blocks:
        found += _messages(block, calls[len(found) :])
    return found


def _blocks(token_ids: Sequence[int]) -> list[list[int]]:
    """What stands behind each mark of a beginning; all but the last with nothing behind their end but its newline."""
    names = _control_ids()
    found: list[list[int]] = []
    for is_mark, ids in groupby(token_ids, lambda token_id: names.get(token_id) == _BEGINS):
        group = list(ids)
        if is_mark:
            found += [[] for _ in group]
        elif found:
            found[-1] = group
        else:
            raise Unreadable("it does not begin with a message")
    if not found:
        raise Unreadable("it has no message")
    *blocks, opening = found
    return [*map(_closed, blocks), opening]


def _closed(block: list[int]) -> list[int]:
    names = _control_ids()
    ends = [place for place, token_id in enumerate(block) if names.get(token_id) == _ENDS]
    if len(ends) != 1:
        raise Unreadable(f"a message with {len(ends)} ends")
    if _written(block[ends[0] + 1 :]) != "\n":
        raise Unreadable("something between two messages")
    return block[: ends[0]]


def _messages(block: list[int], calls: Sequence[bool]) -> Iterator[Said]:
    names = _control_ids()
    marks = [names[token_id] for token_id in block if token_id in names]
    role, _, text = _written(block).partition("\n")
    if role == "user" and _RESULT in marks:
        yield from _results(block)
    elif role == "assistant":
        # The model may end an answer with another token than the template does.
        if _ENDS_TEXT in marks and names.get(block[-1]) != _ENDS_TEXT:
            raise Unreadable("an answer that goes on behind its end")
        yield _answer(text.removesuffix(_ENDS_TEXT), has_calls=bool(calls) and calls[0])
    elif marks:
        raise Unreadable(f"{marks} as control tokens within a message of {role}")
    else:
        yield _said(role, text)


def _results(block: list[int]) -> Iterator[Said]:
    names = _control_ids()
    pieces = [
        (mark, [] if mark else list(ids)) for mark, ids in groupby(block, lambda token_id: names.get(token_id, ""))
    ]
    marks = [mark for mark, _ in pieces if mark]
    if marks != [_RESULT, _ENDS_RESULT] * (len(marks) // 2):
        raise Unreadable(f"{marks} within results of tools")
    texts = [_written(ids) for mark, ids in pieces if not mark]
    outside, inside = texts[::2], texts[1::2]
    if outside != ["user\n", *["\n"] * (len(inside) - 1)] or not all(_stands_alone(text) for text in inside):
        raise Unreadable("something beside the results of tools")
    yield from (_said("tool", text[1:-1]) for text in inside)


def _stands_alone(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] == "\n"


def _answer(text: str, *, has_calls: bool) -> Said:
    if not has_calls:
        return _said("assistant", text)
    try:
        calls = [_value(json.loads(call)) for call in _CALL.findall(text)]
    except ValueError:
        raise Unreadable("a call that is no JSON") from None
    return _said("assistant", _CALL.sub("", text), calls)


def _written(token_ids: Sequence[int]) -> str:
    return str(tokenizer().decode(list(token_ids), skip_special_tokens=False))


@dataclass(frozen=True)
class Session:
    """What is known of a session beside its shim.

    Attributes:
        token_ids: its history.
        seed: of its latest answer.
    """

    token_ids: Sequence[int]
    tenant: str
    model: str
    sink: int
    window: int
    on_overflow: str
    eos_token_ids: Sequence[int]
    seed: int


def num_head_tokens(token_ids: Sequence[int], messages: Sequence[Mapping[str, Any]]) -> int:
    """Of the system messages that a history begins with."""
    names = _control_ids()
    num_leading = next(
        (number for number, message in enumerate(sent(messages)) if message.role != "system"), len(messages)
    )
    begins = [place for place, token_id in enumerate(token_ids) if names.get(token_id) == _BEGINS]
    return begins[num_leading]
