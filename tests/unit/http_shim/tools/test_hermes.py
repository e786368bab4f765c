import pytest

from tests.unit.http_shim.tools.reading import answer, calls


def _one(text: str) -> tuple[str, str]:
    (call,) = answer("hermes", text).calls
    return call.name, call.arguments


def test_arguments_stay_as_they_were_written() -> None:
    text = '<tool_call>{"name" : "f","arguments":{ "b":1.50, "a":"\\u00e9é" }}</tool_call>'
    assert _one(text) == ("f", '{ "b":1.50, "a":"\\u00e9é" }')


def test_control_characters_in_texts_are_escaped() -> None:
    assert _one('<tool_call>{"name": "f", "arguments": {"a":\n"b\n\tc\x01"}}</tool_call>')[1] == (
        '{"a":\n"b\\n\\tc\\u0001"}'
    )


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ("", {}),
        (', "arguments": null', {}),
        (', "arguments": {}', {}),
        (', "parameters": {"a": 1}', {"a": 1}),
        (', "arguments": "{\\"a\\": 1}"', {"a": 1}),
        (', "type": "function", "id": 5, "arguments": {"name": "g"}', {"name": "g"}),
    ],
)
def test_arguments_in_all_their_forms(given: str, arguments: dict[str, object]) -> None:
    assert calls("hermes", f'<tool_call>{{"name": "f"{given}}}</tool_call>') == [("f", arguments)]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '{"name": "f"} }',
        '{"name": "f"}, {"name": "g"}',
        "{}",
        '{"name": ""}',
        '{"name": 5}',
        '{"arguments": {}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "no"}',
        '{"name": "f", "arguments": {}, "parameters": {}}',
        '{"name": "f", "name": "g"}',
        '{"name": "f", "arguments": {"a": 1, "\\u0061": 2}}',
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": {"a": True}}',
        '{"name": "f", "arguments": {"a": 1,}}',
        '{"name": "f", "arguments": {"a": 01}}',
        '{"name": "f", "arguments": {"a" 1}}',
        '{"name": "f", "arguments": {"a": "\\x"}}',
        '{"name": "f", "arguments": {"a": "\\u00g0"}}',
        '{"name": "f", "arguments": {"a": [1 2]}}',
        '{"name": "f", "arguments": {a: 1}}',
        "{'name': 'f'}",
        '{"name": "f", "arguments": {"a": ' + "[" * 64 + "]" * 64 + "}}",
    ],
)
def test_what_is_no_call_is_text(body: str) -> None:
    text = f"So: <tool_call>{body}</tool_call>."
    assert (answer("hermes", text).content, answer("hermes", text).calls) == (text, ())


def test_values_are_as_deep_as_clients_can_read() -> None:
    value = "[" * 63 + "]" * 63
    assert _one(f'<tool_call>{{"name": "f", "arguments": {{"a": {value}}}}}</tool_call>')[1] == f'{{"a": {value}}}'


@pytest.mark.parametrize("end", ["", "\n", "\n</tool", "</tool_call", "</tool_call>"])
def test_a_whole_call_counts_without_its_last_tag_at_the_end(end: str) -> None:
    assert calls("hermes", f'<tool_call>{{"name": "f"}}{end}') == [("f", {})]


def test_a_call_may_begin_where_the_last_one_should_be_closed() -> None:
    assert calls("hermes", '<tool_call>{"name": "f"}\n<tool_call>{"name": "g"}</tool_call>') == [("f", {}), ("g", {})]


def test_of_two_calls_the_second_can_be_malformed() -> None:
    got = answer("hermes", '<tool_call>{"name": "f"}\n<tool_call>no</tool_call>')
    assert ([call.name for call in got.calls], got.content) == (["f"], "<tool_call>no</tool_call>")
