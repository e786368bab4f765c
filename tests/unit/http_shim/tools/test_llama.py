import pytest

from tests.unit.http_shim.tools.reading import answer, calls

_CALL = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
_PARIS = ("get_weather", {"city": "Paris"})


@pytest.mark.parametrize(
    "text",
    [
        _CALL,
        f"\n {_CALL}\n",
        f"<|python_tag|>{_CALL}",
        f"<|python_start|> {_CALL} <|python_end|>",
        f"{_CALL};",
        f"{_CALL} ; ",
        '{"type": "function", "name": "get_weather", "arguments": {"city": "Paris"}}',
        "[get_weather(city='Paris')]",
        '[ get_weather( city = "Paris" , ) , ]\n',
        "<|python_start|>[get_weather(city='Paris')]<|python_end|>",
        "<|python_tag|>[get_weather(city='Paris')]",
    ],
)
def test_all_forms_of_a_call(text: str) -> None:
    assert calls("llama", text) == [_PARIS]


@pytest.mark.parametrize("between", ["; ", "\n", "<|python_tag|>"])
def test_several_objects(between: str) -> None:
    assert calls("llama", f'{_CALL}{between}{{"name": "get_time", "parameters": {{}}}}') == [_PARIS, ("get_time", {})]


def test_a_call_without_a_mark_may_follow_a_line_of_text() -> None:
    got = answer("llama", f"I look.\n  {_CALL}")
    assert (got.content, [call.name for call in got.calls]) == ("I look.", ["get_weather"])


@pytest.mark.parametrize(
    "text",
    [
        f"As {_CALL}",
        f"{_CALL} is how",
        f"```\n{_CALL}\n```",
        '{"name": "unknown", "parameters": {}}',
        '{"name": "get_time", "parameters": {}, "more": 1}',
        '{"capital": "Paris"}',
        "{}",
        "[1, 2]",
        "[]",
        "[unknown()]",
        "[get_time]",
        "[get_time()] is how",
        "[get_time(1)]",
        "[get_time(a)]",
        "[get_time(a=b)]",
        "[get_time(a=1 b=2)]",
        "[get_time(a=1, a=2)]",
        "[get_time(a={'b': 1, 'b': 2})]",
        "[get_time(a='\\U00110000')]",
        "[get_time(a-b=1)]",
        "[get_time() get_time()]",
        "<|python_tag|>brave_search.call(query='x')",
        "<|python_start|>[get_time()]<|python_tag|>",
        "[x](http://x)",
    ],
)
def test_what_is_no_call_is_text(text: str) -> None:
    got = answer("llama", text)
    assert (got.content, got.calls) == (text, ())


@pytest.mark.parametrize("text", ["[get_time(), get_weather(city='Pa", "[get_time()", '{"name": "get_ti', "{", "["])
def test_what_is_cut_is_text_where_it_has_no_mark(text: str) -> None:
    got = answer("llama", text)
    assert (got.content, got.calls, got.unfinished) == (text, (), "")


def test_behind_a_mark_any_name_is_a_call() -> None:
    assert calls("llama", '<|python_tag|>{"name": "f"}') == [("f", {})]
    assert calls("llama", "<|python_start|>[a.b-c(), f(x=1)]") == [("a.b-c", {}), ("f", {"x": 1})]


def test_of_two_objects_the_second_can_be_malformed() -> None:
    got = answer("llama", f"{_CALL}; no")
    assert ([call.name for call in got.calls], got.content) == (["get_weather"], "; no")
    got = answer("llama", f"<|python_tag|>{_CALL}<|python_tag|>no")
    assert ([call.name for call in got.calls], got.content) == (["get_weather"], "<|python_tag|>no")


def test_values_in_pythons_notation() -> None:
    text = (
        "[get_weather(city='a\\'b\\n\\x41\\u00e9\\U0001F600\\d\\\\\n\t\\\nc', n=-1.5e3, t=True, f=false, none=None, "
        "l=['x', (1, 2,), (), [], ], o={\"a\" : {}, 'b': {'c': [1]}, })]"
    )
    ((_, arguments),) = calls("llama", text)
    assert arguments == {
        "city": "a'b\nAé😀\\d\\\n\tc",
        "n": -1500.0,
        "t": True,
        "f": False,
        "none": None,
        "l": ["x", [1, 2], [], []],
        "o": {"a": {}, "b": {"c": [1]}},
    }
