"""What holds for the parsers of all families."""

import json
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from kakeya_http_shim.tools.deltas import (
    ArgumentText,
    CallBegun,
    Content,
    Delta,
    Unfinished,
    joined,
    merged,
    new_call_id,
)
from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_http_shim.tools.parser import ToolCallParser
from tests.unit.http_shim.tools.reading import TOOLS, WRITERS, answer, check_order, cut, deltas_of, parser_of

_PARTS = {
    "hermes": ["<tool_call>", "</tool_call>", '{"name": "get_time"', ', "arguments": {"a": 1}', "}", "{"],
    "qwen3-xml": [
        *("<tool_call>", "</tool_call>", "<function=get_time>", "<parameter=city>", "</parameter>", "</function>"),
        *("</tool", "<parameter=", "\n</parameter>\n</function>\n", "<function=unknown>"),
    ],
    "llama": [
        *("<|python_tag|>", "<|python_start|>", "<|python_end|>", '{"name": "get_time"', ', "parameters": {}}'),
        *("[get_time(", "a=1", "b='x'", ")", "]", ";", "{", "["),
    ],
    "mistral": [
        *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "abcdefghi", "get_time", '{"a": 1}', "[", "]"),
        *('{"name": "get_time", "arguments": {}}', "{", "}"),
    ],
}
_COMMON = ["\n", " ", "a", '"', "\\", ",", ":", "<", "é"]
_families = st.sampled_from(sorted(SYNTAXES))
_texts = _families.flatmap(
    lambda family: st.tuples(
        st.just(family), st.lists(st.sampled_from(_PARTS[family] + _COMMON), max_size=24).map("".join) | st.text()
    )
)
_cuts = st.lists(st.integers(0, 120), max_size=20)

_NOISE = st.text(st.sampled_from("ab é.\n\t>}]"), max_size=8)
_NAMES = st.sampled_from(["get_weather", "get_time"])
_SCALARS = st.booleans() | st.none() | st.integers(-(10**20), 10**20) | st.text(max_size=5)
# Drawing them takes longer than reading them: so there are few levels and short names.
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_ARGUMENTS = st.dictionaries(st.text(st.sampled_from("abcde_"), min_size=1, max_size=4), _VALUES, max_size=3)


_MALFORMED = {
    "hermes": ["<tool_call>no</tool_call>", '<tool_call>{"a": 1}</tool_call>', '<tool_call>{"name": "f"}}</tool_call>'],
    "mistral": ["[TOOL_CALLS] no", "[TOOL_CALLS]f[ARGS]1", '[TOOL_CALLS][{"a": 1}]', "[TOOL_CALLS]f[CALL_ID]a b"],
    "llama": ["<|python_tag|>no", "<|python_start|>[f(1)]", '\n{"a": 1}', "\n[1, 2]", "<|python_start|>[f(a=1, a=2)]"],
    "qwen3-xml": ["<tool_call>no", "<function=unknown>", "<tool_call><function=>", "<tool_call>\n<function=f>no"],
}


@given(_texts, _cuts)
@example(("hermes", '<tool_call>{"name": "a"<tool_call>{"name": "b"}'), [12])
@example(("llama", '{"name": "get_time", "parameters": {}}; {"name": "get_time"'), [40])
def test_however_a_text_is_cut_its_answer_is_the_same(said: tuple[str, str], cuts: list[int]) -> None:
    family, text = said
    whole = joined(deltas_of(family, [text]))
    event(f"calls: {min(len(whole.calls), 2)}")
    event(f"unfinished: {bool(whole.unfinished)}")
    for pieces in (cut(text, cuts), text):
        deltas = deltas_of(family, pieces)
        check_order(deltas)
        assert joined(deltas) == whole


@given(_texts)
def test_a_text_without_a_call_is_all_content(said: tuple[str, str]) -> None:
    family, text = said
    whole = answer(family, text)
    if not whole.calls and not whole.unfinished:
        assert whole.content == text
    elif not whole.calls:
        assert text.endswith(whole.unfinished)
        assert whole.content == text[: len(text) - len(whole.unfinished)].rstrip()


@given(_texts)
def test_arguments_are_always_a_json_object(said: tuple[str, str]) -> None:
    for call in answer(*said).calls:
        assert isinstance(json.loads(call.arguments), dict)
        assert len(call.id) == 9


@given(_families, st.lists(st.tuples(_NOISE, _NAMES, _ARGUMENTS), min_size=1, max_size=3), _NOISE, _cuts)
def test_calls_and_the_text_around_them_come_through(
    family: str, said: list[tuple[str, str, dict[str, Any]]], end: str, cuts: list[int]
) -> None:
    # A text of the XML family is a value by its schema only; json.dumps marks strings, which are none there.
    calls = [
        (name, {key: value for key, value in arguments.items() if family != "qwen3-xml" or not isinstance(value, str)})
        for _, name, arguments in said
    ]
    text = "".join(noise + WRITERS[family](*call) for (noise, *_), call in zip(said, calls, strict=True)) + end
    got = joined(deltas_of(family, cut(text, cuts)))
    assert [(call.name, json.loads(call.arguments)) for call in got.calls] == calls
    assert got.content == ("".join(noise for noise, *_ in said) + end).rstrip()


@given(
    _families.flatmap(
        lambda family: st.tuples(st.just(family), st.lists(st.sampled_from(_MALFORMED[family]), min_size=1, max_size=4))
    ),
    st.booleans(),
)
def test_what_is_malformed_is_content_to_the_last_letter(said: tuple[str, list[str]], is_behind_call: bool) -> None:
    family, texts = said
    call = WRITERS[family]("get_time", {}) if is_behind_call else ""
    text = " and ".join(texts) + " and more"
    got = answer(family, f"{call}Then {text}")
    assert got.content == f"Then {text}"
    assert len(got.calls) == is_behind_call


_UNFINISHED = {
    "hermes": '<tool_call>\n{"name": "get_time", "argu',
    "mistral": '[TOOL_CALLS]get_time[ARGS]{"a',
    "llama": "<|python_start|>[get_time(a=1), get_ti",
    "qwen3-xml": "<tool_call>\n<function=get_time>\n<parameter=a>\nrm -rf /",
}


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_a_call_that_is_cut_is_no_call(family: str) -> None:
    call, text = WRITERS[family]("get_time", {}), _UNFINISHED[family]
    alone = answer(family, f"So:\n{text}")
    assert (alone.content, alone.calls, alone.unfinished) == (f"So:\n{text}", (), "")
    behind = answer(family, f"So:\n{call}\n{text}")
    assert (behind.content, len(behind.calls), behind.unfinished) == ("So:", 1, text)


@pytest.mark.parametrize("family", sorted(SYNTAXES))
def test_a_mark_with_nothing_behind_it_is_no_text(family: str) -> None:
    mark = SYNTAXES[family](TOOLS).openers[0]
    got = answer(family, f"I look.\n{mark}\n")
    assert (got.content, got.calls, got.unfinished) == ("I look.", (), f"{mark}\n")


def test_text_is_told_as_it_comes_and_a_call_when_it_is_whole() -> None:
    parser = parser_of("hermes")
    assert parser.push("I look") == [Content("I look")]
    assert parser.push(". \n<tool") == [Content(".")]
    assert parser.is_holding
    assert parser.push('_call>{"name": "f", "arguments": {"a": 1}}') == []
    assert parser.is_holding
    begun, arguments = parser.push("</tool_call>")
    assert isinstance(begun, CallBegun)
    assert (begun, arguments.text) == (CallBegun(0, "id0000000", "f"), '{"a": 1}')  # type: ignore[union-attr]
    assert not parser.is_holding
    assert parser.push("\n") == []
    assert parser.push("So.") == [Content(" \n\nSo.")]
    assert parser.finish() == []


def test_white_space_at_the_end_stays_where_nothing_was_called() -> None:
    assert answer("hermes", "\n So. \n").content == "\n So. \n"


def test_a_finished_answer_takes_no_more() -> None:
    parser = parser_of("hermes")
    parser.finish()
    assert parser.finish() == []
    with pytest.raises(ValueError, match="complete"):
        parser.push("a")


def test_an_unfinished_call_is_a_delta_of_its_own() -> None:
    assert deltas_of("mistral", ["[TOOL_CALLS]"]) == [Unfinished("[TOOL_CALLS]")]


def test_an_id_of_the_models_is_kept_once() -> None:
    call = "[TOOL_CALLS]f[CALL_ID]{}[ARGS]{{}}"
    text = "".join(call.format(given) for given in ("id0000000", "id0000000", "short"))
    assert [call.id for call in answer("mistral", text + "[TOOL_CALLS]f[ARGS]{}").calls] == [
        "id0000000",
        "id0000001",
        "id0000002",
        "id0000003",
    ]


def test_ids_are_nine_letters_and_digits() -> None:
    ids = {new_call_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(made) == 9 and made.isascii() and made.isalnum() for made in ids)
    (call,) = joined(ToolCallParser(SYNTAXES["hermes"](TOOLS)).push(WRITERS["hermes"]("f", {}))).calls
    assert len(call.id) == 9


_CLOSED = {"hermes": "\n", "qwen3-xml": "\n</tool_call>\n", "llama": " \n", "mistral": " \n"}


@given(_families, _ARGUMENTS, _NOISE, _cuts)
def test_an_answer_may_end_with_its_first_call(
    family: str, arguments: dict[str, Any], noise: str, cuts: list[int]
) -> None:
    call = WRITERS[family]("get_time", {key: value for key, value in arguments.items() if not isinstance(value, str)})
    one = ToolCallParser(SYNTAXES[family](TOOLS), only_first=True)
    for piece in cut(noise + call + _CLOSED[family].removeprefix("\n</tool_call>"), cuts):
        one.push(piece)
        assert not one.is_over
    one.finish()
    assert not one.is_over
    for more in ("So.", call, call[:-1], "\n\n" + call[:12]):
        parser = ToolCallParser(SYNTAXES[family](TOOLS), only_first=True)
        deltas = [delta for piece in cut(noise + call + more, cuts) for delta in parser.push(piece)] + parser.finish()
        whole = joined(deltas)
        assert parser.is_over
        assert (whole.content, len(whole.calls), whole.unfinished) == (noise.rstrip(), 1, "")


@pytest.mark.parametrize(
    ("family", "closing"),
    [
        ("qwen3-xml", "\n</tool_call>"),
        ("mistral", "]"),
        ("llama", "<|python_end|>"),
    ],
)
def test_what_closes_the_first_call_is_no_more_of_an_answer(family: str, closing: str) -> None:
    call = {
        "qwen3-xml": "<tool_call>\n<function=get_time>\n</function>",
        "mistral": '[TOOL_CALLS] [{"name": "get_time", "arguments": {}}',
        "llama": "<|python_start|>[get_time()]",
    }[family]
    parser = ToolCallParser(SYNTAXES[family](TOOLS), only_first=True)
    for letter in call + closing:
        parser.push(letter)
        assert not parser.is_over
    parser.push("<" if family != "mistral" else "S")
    assert parser.is_over or not parser.push("S")
    assert parser.is_over


def test_what_follows_the_first_call_ends_an_answer_before_it_is_whole() -> None:
    parser = ToolCallParser(SYNTAXES["mistral"](TOOLS), only_first=True)
    parser.push('[TOOL_CALLS] [{"name": "get_time"}')
    assert not parser.is_over
    parser.push(", ")
    assert parser.is_over


def test_adjacent_texts_are_merged() -> None:
    call, other = CallBegun(0, "a", "f"), CallBegun(1, "b", "f")
    pieces: list[Delta] = [
        Content("a"),
        Content("b"),
        call,
        ArgumentText(0, "{"),
        ArgumentText(0, "}"),
        other,
        ArgumentText(1, "{}"),
    ]
    assert merged([*pieces, Content("c")]) == (
        Content("ab"),
        call,
        ArgumentText(0, "{}"),
        other,
        ArgumentText(1, "{}"),
        Content("c"),
    )
