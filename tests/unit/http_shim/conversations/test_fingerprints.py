"""Fingerprints are equal where two messages count as the same, and only there."""

import json
from collections.abc import Mapping
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from kakeya_http_shim.conversations.fingerprints import fingerprint
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.messages import (
    AssistantMessage,
    FunctionCall,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

OUR_ID, OTHER_ID = "abcDEF123", "call_abc"
MARK = {"type": "ephemeral"}


def printed(message: Mapping[str, Any]) -> bytes:
    body = json.dumps({"messages": [message]}).encode()
    return fingerprint(ChatRequest.read(body).messages[0])


def text(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **fields}


def refused(text: str) -> dict[str, Any]:
    return {"type": "refusal", "refusal": text}


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def said(content: Any = None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def call(arguments: str, id: str = OUR_ID, name: str = "add", **fields: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **fields}


PARSED = {**call("{}"), "function": {"name": "add", "arguments": "{}", "parsed_arguments": {}}}
"""As openai-python's stream helper has a call."""


def called(arguments: str, id: str = OUR_ID, **fields: Any) -> dict[str, Any]:
    return said(tool_calls=[call(arguments, id, **fields)])


def used(content: Any, id: str = OUR_ID) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": id}


SAME = [
    (
        *(user("a"), user([text("a")]), user([text("a", cache_control=MARK)]), user("a", cache_control=MARK)),
        *(user("a", name=None), user("a", cache_control=None), user("a", unknown=[])),
    ),
    (user([text("a"), text("b")]), user([text("a", cache_control=MARK), text("b")])),
    (used("a"), used([text("a")])),
    ({"role": "system", "content": "a"}, {"role": "system", "content": [text("a")], "cache_control": MARK}),
    # What the model said.
    (said("a b"), said(" a b\n"), said([text("a"), text(" b")]), said([text("a "), refused("b")]), said("a b\u00a0")),
    (said("a"), said("a", reasoning_content="b"), said("a", tool_calls=[]), said("a", refusal=None)),
    (said(), said(""), said([]), said(" \n"), said([text("")]), {"role": "assistant"}),
    (said("a <|im_end|> b"), said("a <\u200d|im_end|> b"), said("a <\u200b|im_end|> b")),
    (
        said("yes"),
        said("<think>\nhm\n</think>\n\nyes"),
        said(" <think>no </think> yes"),
        said([text("<think>"), text("</think>yes")]),
    ),
    (said("<think>a"), said("<think>a", reasoning_content="a")),
    (said("[INST]~b]~b]"), said("[\u200dINST]~b]\u200d~b]")),
    # Calls with an id as ours have it.
    (called('{"a": 1, "b": [true, null]}'), called('{"b":[true,null],"a":1.0}'), called('{"a":10e-1,"b":[true,null]}')),
    (called("0"), called("-0"), called("0.00"), called("0e7"), called(" 0 ")),
    (called("100"), called("1e2"), called("1E+2"), called("100.0"), called("0.1e3"), called("0.01e4")),
    (called("-1.5"), called("-15e-1"), called("-1.50")),
    (called(r'"\u00e9\n"'), called('"é\\n"')),
    (called('{"a": ["<|im_end|>"]}'), called('{"a": ["<\u200d|im_end|>"]}'), called(r'{"a":["<\u200d|im_end|>"]}')),
    (called('{"<a": 1, "<b": 2}'), called('{"<\u200da": 1, "<b": 2}')),
    (
        *(called("{}"), called("{}", index=0), said("", tool_calls=[call(" {} ")])),
        *(said(tool_calls=[PARSED]), said(tool_calls=[call("{}")], unfinished_call="<tool_call>")),
        said(tool_calls=[call("{}")], provider_specific_fields={"refusal": None}),
    ),
    (called("9" * 5000), called("9" * 5000 + ".0")),
]
"""All of a row count as the same; those of two rows do not."""
DIFFERENT = [
    user(""),
    user(" a"),
    user("a "),
    user("b"),
    user("A"),
    user("á"),
    user("a\u0301"),
    user("a", name="b"),
    user("a", name=""),
    user([text("b"), text("a")]),
    user([text("ab")]),
    user([text("a"), text("b"), text("")]),
    user('["a"]'),
    user('[{"text": "a", "type": "text"}, {"text": "b", "type": "text"}]'),
    {"role": "system", "content": "b"},
    {"role": "developer", "content": "a"},
    used("a", "abcDEF124"),
    used("a "),
    used("a", ""),
    said("a  b"),
    said("a <think>b</think>"),
    said("a</think>yes"),
    said("<think>a</think>yes</think>"),
    user("<think>a</think>yes"),
    said("a\u200d <|im_end|> b"),
    said("a <\u200d\u200d|im_end|> b"),
    said("a <|\u200dim_end|> b"),
    user("a <|im_end|> b"),
    user("a <\u200d|im_end|> b"),
    called('{"a": ["<\u200d|im_end|>"]}', id=OTHER_ID),
    said("a", name="b"),
    said("a", refusal=""),
    said("a", refusal="b"),
    said(refusal="a"),
    said("a", tool_calls=[call("{}")]),
    said(tool_calls=[call("{}"), call("{}")]),
    said(tool_calls=[call("{}"), call("[]")]),
    said(tool_calls=[call("[]"), call("{}")]),
    called("{}", id="abcDEF124"),
    called("{}", name="sub"),
    called("{}", id=OTHER_ID),
    called(" {}", id=OTHER_ID),
    called("{}", id="abcDEF12"),
    called(" {}", id="abcDEF12"),
    called("{}", id="äbcDEF123"),
    called(" {}", id="äbcDEF123"),
    called("{}", id="abcDEF123\n"),
    called("1"),
    called('"1"'),
    called("[1]"),
    called("true"),
    called("10"),
    called("-100"),
    called("15"),
    called('{"a": 1}'),
    called('{"a": "1"}'),
    called('{"a": [1]}'),
    called('{"": 1}'),
    called('{"": "1e0"}'),
    called('{".a": 1}'),
    # Two numbers that are one float.
    called("9007199254740993"),
    called("9007199254740992"),
    called("0.1"),
    called("0.10000000000000000001"),
    # No JSON, or none with one value.
    called(""),
    called("{"),
    called("{ "),
    called("nan"),
    called("NaN"),
    called(" NaN"),
    called("-Infinity"),
    called('{"a": 1, "a": 2}'),
    called('{"a": 1,"a": 2}'),
    called('{"<": 1, "<\u200d": 2}'),
    called("1e" + "9" * 5000),
    called("1.0e" + "9" * 5000),
    called("[" * 100_000 + "]" * 100_000),
    called("[" * 100_000 + "]" * 99_999 + " ]"),
]
"""Each counts as none of the others, and as none of the table above."""


@pytest.mark.parametrize("row", SAME, ids=lambda row: json.dumps(row[0])[:60])
def test_messages_that_count_as_the_same(row: tuple[dict[str, Any], ...]) -> None:
    assert len({printed(message) for message in row}) == 1


def test_messages_that_do_not() -> None:
    messages = [row[0] for row in SAME] + DIFFERENT
    for one, other in combinations([(printed(message), message) for message in messages], 2):
        assert one[0] != other[0], (one[1], other[1])


def test_it_has_32_bytes() -> None:
    assert len(printed(user("a"))) == 32


# What follows says the rules once more, of two messages as they are sent, and knows nothing of bytes.


def are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if any(one.get(name) != other.get(name) for name in ("role", "name", "tool_call_id")):
        return False
    if one["role"] != "assistant":
        return texts(one) == texts(other)
    calls = [each.get("tool_calls") or [] for each in (one, other)]
    return (
        answered("".join(texts(one))).strip() == answered("".join(texts(other))).strip()
        and one.get("refusal") == other.get("refusal")
        and len(calls[0]) == len(calls[1])
        and all(map(are_same_calls, *calls))
    )


def texts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [part["refusal" if part["type"] == "refusal" else "text"] for part in content or []]


def unbroken(text: str) -> str:
    return text.replace("<\u200d", "<")


def answered(text: str) -> str:
    thought, closed, answer = unbroken(text).partition("</think>")
    return answer if closed and thought.strip().startswith("<think>") else unbroken(text)


def are_same_calls(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    arguments = [each["function"]["arguments"] for each in (one, other)]
    if one["id"] != other["id"] or one["function"]["name"] != other["function"]["name"]:
        return False
    return arguments[0] == arguments[1] or (one["id"] == OUR_ID and are_same_values(*arguments))


def are_same_values(*arguments: str) -> bool:
    try:
        one, other = (json.loads(each, parse_int=Decimal, parse_float=Decimal) for each in arguments)
    except ValueError:
        return False
    return typed(one) == typed(other)


def typed(value: Any) -> Any:
    """Python takes true for 1."""
    if isinstance(value, dict):
        return {unbroken(name): typed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [typed(each) for each in value]
    if isinstance(value, str):
        return unbroken(value)
    return (type(value), value)


TEXTS = st.sampled_from(
    [
        "",
        " ",
        "a",
        "a ",
        " a",
        "b",
        "ab",
        "a b",
        '"',
        "\\",
        "[]",
        "é",
        "e\u0301",
        "\n",
        "<",
        "<\u200d",
        "<think>",
        "</think>",
    ]
)
MARKS = st.fixed_dictionaries({}, optional={"cache_control": st.just(MARK)})
PARTS = st.builds(lambda written, marks: text(written, **marks), TEXTS, MARKS)
CONTENTS = TEXTS | st.lists(PARTS, min_size=1, max_size=3)
JSON_TEXTS = st.sampled_from(
    [
        *("", "{", "{}", " {}", "[]", "1", "1.0", "10e-1", "1e1", '"1"', "true", '{"a":1}', '{"a": 1.0}', '{"b":1}'),
        *('"<\u200d|"', '"<|"', r'"<\u200d|"'),
        *('{"a":1,"b":2}', '{"b":2,"a":1}', '{"a":{"b":[1,2]}}', '{ "a": {"b": [1, 2]}}', '{"a":{"b":[2,1]}}'),
    ]
)
CALLS = st.builds(call, JSON_TEXTS, st.sampled_from([OUR_ID, OTHER_ID]), st.sampled_from(["add", "sub"]))
NAMES = {"name": st.sampled_from([None, "", "a"]), "cache_control": st.sampled_from([None, MARK])}
OTHERS = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user"]), "content": CONTENTS}, optional=NAMES
)
TOOLS = st.fixed_dictionaries(
    {"role": st.just("tool"), "content": CONTENTS, "tool_call_id": st.sampled_from([OUR_ID, OTHER_ID])}, optional=NAMES
)
ANSWERS = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={
        "content": st.none() | TEXTS | st.lists(PARTS | st.builds(refused, TEXTS), max_size=3),
        "reasoning_content": st.sampled_from([None, "", "a"]),
        "refusal": st.sampled_from([None, "", "a"]),
        "tool_calls": st.lists(CALLS, max_size=2),
        **NAMES,
    },
)
PAIRS = st.one_of(*(st.tuples(kind, kind) for kind in (OTHERS, TOOLS, ANSWERS, OTHERS | TOOLS | ANSWERS)))


@given(PAIRS)
@example((user("a"), user([text("a")])))
@example((said(" a"), said([text("a"), refused("\n")])))
@example((called('{"a":1,"b":2}'), called('{"b":2,"a":1}')))
@example((called("1"), called("true")))
def test_fingerprints_are_equal_where_the_rules_say_so(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = pair
    same = are_same(one, other)
    event("the same" if same else "not the same")
    assert (printed(one) == printed(other)) == same


@given(st.lists(OTHERS | TOOLS | ANSWERS, min_size=2, max_size=12))
def test_a_message_is_known_by_its_fingerprint_among_others(messages: list[dict[str, Any]]) -> None:
    prints = [printed(message) for message in messages]
    for (one, of_one), (other, of_other) in combinations(list(zip(messages, prints, strict=True)), 2):
        assert (of_one == of_other) == are_same(one, other)


def test_fields_of_messages_are_told_apart_until_it_is_said_that_they_do_not_count() -> None:
    """A new one has to be thought of: a field that is left out of fingerprints joins conversations that differ."""
    fields = {
        model: set(model.model_fields)
        for model in (SystemMessage, UserMessage, ToolMessage, AssistantMessage, TextPart, RefusalPart, ToolCall)
    }
    of_all = {"role", "content", "name", "cache_control"}
    assert fields == {
        SystemMessage: of_all,
        UserMessage: of_all,
        ToolMessage: {*of_all, "tool_call_id"},
        AssistantMessage: {
            *(*of_all, "reasoning_content", "refusal", "tool_calls", "unfinished_call"),
            "provider_specific_fields",
        },
        TextPart: {"type", "text", "cache_control"},
        RefusalPart: {"type", "refusal", "cache_control"},
        ToolCall: {"id", "type", "function", "index"},
    }
    assert set(FunctionCall.model_fields) == {"name", "arguments", "parsed_arguments"}
