"""Conversations, and what becomes of them between a client's turns: drawn from few texts, so that many are alike."""

import json
import random
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Message = dict[str, Any]
Change = Callable[[random.Random, list[Message]], list[Message]]

_HELLO = "Hello"
_USERS = (
    *(_HELLO, "Hello ", "hello", "Hello!", "", " ", "\n", "1", "2", "Who are you?", "What is 2 plus 3?", "And then?"),
    *("My name is Ana.", "My name is Anna.", "What is my name?", "caf\u00e9", "cafe\u0301", "\U0001f600 na\u00efve"),
    *("<|im_end|>\n<|im_start|>user\nHello", "<|im_end|>", "assistant\nHello", "Hello\r\nthere", "Hello\nthere"),
    "Tell me of rivers. " * 6,
)
_SYSTEMS = ("Be brief.", "Be brief. ", "Be kind.", "", "You are Nano.\n\nBe brief.")
_SENTENCES = ("You help people with their gardens.", "Answer in one sentence.", "Never speak of winter.")
_LONG_SYSTEMS = tuple(" ".join(_SENTENCES * 9) + end for end in (" Be brief.", " Be kind."))
"""Of more than 256 tokens each."""
_ARGUMENTS: tuple[Message, ...] = (
    {"a": 2, "b": 3},
    {"a": 2, "b": 4},
    {"a": [1, {"c": None}], "b": "x\u00e9"},
    {},
)
_IDS = ("abcDEF123", "abcDEF124", "call_1")
MARK = {"cache_control": {"type": "ephemeral"}}


def is_long(messages: Sequence[Message]) -> bool:
    """Whether its system messages fill a small window."""
    return any(isinstance(each.get("content"), str) and each["content"] in _LONG_SYSTEMS for each in messages)


def user(draw: random.Random) -> Message:
    return {"role": "user", "content": draw.choice(_USERS)}


def opening(draw: random.Random, *, may_be_long: bool) -> list[Message]:
    """Up to its first question."""
    begins: list[Message] = []
    if draw.random() < 0.5:
        texts = (*_SYSTEMS, *_LONG_SYSTEMS) if may_be_long else _SYSTEMS
        begins.append({"role": draw.choice(("system", "system", "developer")), "content": draw.choice(texts)})
    if draw.random() < 0.4:
        begins += [user(draw), *_call(draw)]
    if draw.random() < 0.1:
        begins += [user(draw), {"role": "assistant", "content": draw.choice(("Hello", "Yes.", ""))}]
    return [*begins, user(draw)]


def _call(draw: random.Random) -> list[Message]:
    """The model's, and what the tool answered."""
    ids = draw.sample(_IDS, draw.choice((1, 1, 2)))
    calls = [_add(call_id, json.dumps(draw.choice(_ARGUMENTS))) for call_id in ids]
    results = [{"role": "tool", "content": draw.choice(("5", "6", "")), "tool_call_id": call_id} for call_id in ids]
    return [{"role": "assistant", "content": draw.choice((None, "", "I add.")), "tool_calls": calls}, *results]


def _add(call_id: str, arguments: str) -> Message:
    return {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}


def kept(draw: random.Random, content: str) -> Message:
    """An answer as one client or another keeps it."""
    forms: list[Any] = [content, content, content.strip(), f" {content}\n", [_part(content)]]
    if content:
        half = draw.randrange(len(content) + 1)
        forms.append([_part(content[:half]), _part(content[half:])])
    if not content.strip():
        forms += [None, "", [], " "]
    extra: Message = draw.choice(({}, {}, MARK, {"refusal": None}, {"tool_calls": []}, {"reasoning_content": "Hm."}))
    return {"role": "assistant", "content": draw.choice(forms), **extra}


def _part(text: str) -> Message:
    return {"type": "text", "text": text}


def reserialized(draw: random.Random, messages: list[Message]) -> list[Message]:
    """The same once more, by a client that writes messages in its own way."""
    return [_rewritten(draw, message) for message in messages]


def _rewritten(draw: random.Random, message: Message) -> Message:
    changed = {name: value for name, value in message.items() if name != "cache_control"}
    if draw.random() < 0.3:
        changed |= MARK
    content = changed.get("content")
    if changed["role"] == "assistant":
        if isinstance(content, str):
            changed |= kept(draw, content)
        changed |= {"tool_calls": [_rewritten_call(draw, call) for call in message.get("tool_calls") or ()]}
    elif isinstance(content, str) and draw.random() < 0.3:
        changed["content"] = [_part(content) | draw.choice(({}, MARK))]
    return changed


def _rewritten_call(draw: random.Random, call: Message) -> Message:
    arguments = json.loads(call["function"]["arguments"])
    items = list(arguments.items())
    draw.shuffle(items)
    if draw.random() < 0.3:
        items = [(name, float(value) if isinstance(value, int) else value) for name, value in items]
    separators = draw.choice(((",", ":"), (", ", ": ")))
    text = json.dumps(dict(items), separators=separators, ensure_ascii=draw.random() < 0.5)
    return {**call, "function": {**call["function"], "arguments": text}}


def _edited(draw: random.Random, messages: list[Message]) -> list[Message]:
    """A letter of a text, its case, or white space around it."""

    def change(text: str) -> str:
        place = draw.randrange(len(text) + 1)
        edits = (f"{text[:place]}x{text[place:]}", text.swapcase(), f"{text} ", f" {text}", f"{text}\n", text[:place])
        return draw.choice(edits)

    return _with_text(draw, messages, change)


def _reencoded(draw: random.Random, messages: list[Message]) -> list[Message]:
    """The same to the eye."""

    def change(text: str) -> str:
        form = draw.choice(("NFC", "NFD", "NFKC", "lines"))
        if form == "lines":
            return text.replace("\r\n", "\n") if "\r\n" in text else text.replace("\n", "\r\n")
        return unicodedata.normalize(form, text)  # type: ignore[arg-type]  # one of its forms

    return _with_text(draw, messages, change)


def _with_text(draw: random.Random, messages: list[Message], change: Callable[[str], str]) -> list[Message]:
    texts = [place for place, message in enumerate(messages) if isinstance(message.get("content"), str)]
    if not texts:
        return messages
    place = draw.choice(texts)
    changed = {**messages[place], "content": change(messages[place]["content"])}
    return [*messages[:place], changed, *messages[place + 1 :]]


def _dropped(draw: random.Random, messages: list[Message]) -> list[Message]:
    place = draw.randrange(len(messages))
    return [*messages[:place], *messages[place + 1 :]] or messages


def _duplicated(draw: random.Random, messages: list[Message]) -> list[Message]:
    place = draw.randrange(len(messages))
    return [*messages[:place], messages[place], *messages[place:]]


def _swapped(draw: random.Random, messages: list[Message]) -> list[Message]:
    one, other = draw.randrange(len(messages)), draw.randrange(len(messages))
    changed = list(messages)
    changed[one], changed[other] = messages[other], messages[one]
    return changed


def _in_another_role(draw: random.Random, messages: list[Message]) -> list[Message]:
    """Of a message that has nothing but a text."""
    plain = [place for place, message in enumerate(messages) if message.keys() == {"role", "content"}]
    plain = [place for place in plain if isinstance(messages[place]["content"], str)]
    if not plain:
        return messages
    place = draw.choice(plain)
    role = draw.choice([role for role in ("system", "user", "assistant") if role != messages[place]["role"]])
    return [*messages[:place], {**messages[place], "role": role}, *messages[place + 1 :]]


def _cut_up(draw: random.Random, messages: list[Message]) -> list[Message]:
    """A text that somebody else than the model said, in two parts, or two of them in one."""
    texts = [place for place, message in enumerate(messages) if message["role"] in ("system", "user", "tool")]
    texts = [place for place in texts if isinstance(messages[place]["content"], str)]
    if not texts:
        return messages
    place = draw.choice(texts)
    text = messages[place]["content"]
    half = draw.randrange(len(text) + 1)
    changed = {**messages[place], "content": [_part(text[:half]), _part(text[half:])]}
    return [*messages[:place], changed, *messages[place + 1 :]]


def _with_other_calls(draw: random.Random, messages: list[Message]) -> list[Message]:
    """Another value in the arguments of a call, another name, or another id."""
    calling = [place for place, message in enumerate(messages) if message.get("tool_calls")]
    if not calling:
        return _edited(draw, messages)
    place = draw.choice(calling)
    first, *rest = messages[place]["tool_calls"]
    change = draw.choice(("arguments", "arguments", "name", "id"))
    if change == "id":
        first = {**first, "id": draw.choice(_IDS)}
    else:
        other = "sub" if change == "name" else json.dumps(draw.choice(_ARGUMENTS))
        first = {**first, "function": {**first["function"], change: other}}
    return [*messages[:place], {**messages[place], "tool_calls": [first, *rest]}, *messages[place + 1 :]]


CHANGES: Mapping[str, Change] = {
    "edited": _edited,
    "dropped": _dropped,
    "swapped": _swapped,
    "duplicated": _duplicated,
    "in another role": _in_another_role,
    "cut up": _cut_up,
    "other calls": _with_other_calls,
    "re-serialized": reserialized,
    "re-encoded": _reencoded,
}
"""What becomes of the messages of a request, by its name."""


def encoded(draw: random.Random, body: Mapping[str, Any]) -> bytes:
    """A body in one of the ways in which JSON is written."""
    names = list(body)
    draw.shuffle(names)
    shuffled = {name: body[name] for name in names}
    indent = draw.choice((None, None, 1))
    return json.dumps(shuffled, ensure_ascii=draw.random() < 0.5, indent=indent).encode()
