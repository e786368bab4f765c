import pytest

from tests.unit.http_shim.tools.reading import answer, calls


def _function(parameters: str, name: str = "get_weather") -> str:
    return f"<function={name}>{parameters}</function>"


def _value(parameters: str, key: str = "city") -> object:
    ((_, arguments),) = calls("qwen3-xml", f"<tool_call>\n{_function(parameters)}\n</tool_call>")
    return arguments[key]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<parameter=city>Paris</parameter>", "Paris"),
        ("<parameter=city>\nParis\n</parameter>\n", "Paris"),
        ("<parameter=city>\n\n  Paris \n\n</parameter>\n", "\n  Paris \n"),
        ("<parameter=city>\n</parameter>", ""),
        ("<parameter=city></parameter>", ""),
        ("<parameter=city>\n\n</parameter>", ""),
        ("<parameter=city>\nParis</parameter>\n", "Paris"),
        ("<parameter=city>\na </parameter> b <c </parameter>\n", "a </parameter> b <c "),
        ("<parameter=city>\na</parameter></function> b\n</parameter>", "a</parameter></function> b"),
        ("<parameter=city>\n</parameter>\n</parameter>\n</parameter>", "</parameter>\n</parameter>"),
        ("<parameter=city>\n</function>\n<b>\n</parameter>", "</function>\n<b>"),
        ("<parameter=city>\n</function>\n</function>\n</parameter>", "</function>\n</function>"),
        ("<parameter=city>\n</tool_call>\n<tool_call>\n</parameter>", "</tool_call>\n<tool_call>"),
        ("<parameter=city>\n<parameter=other>\n</parameter>", "<parameter=other>"),
        ("<parameter=city>\n<parameter=days> \n</parameter>", "<parameter=days> "),
        ("<parameter=city>\n<parameter=days\n</parameter>", "<parameter=days"),
        ("<parameter=city>\na\n</parameter>\n<parameter=>\n</parameter>", "a\n</parameter>\n<parameter=>"),
        ("<parameter=city>12</parameter>", "12"),
        ("<parameter=city>a</parameter><parameter=days>1</parameter>", "a"),
    ],
)
def test_a_text_may_hold_tags(text: str, value: str) -> None:
    assert _value(text) == value


_SHOWN = "<tool_call>\n<function=f>\n<parameter=days>\n1\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    "text",
    [
        _SHOWN,
        f"So:\n{_SHOWN}\nand\n{_SHOWN}\n\n",
        _SHOWN.replace("\n", "\n    "),
        f"<function=f>\n<parameter=a>\n{_SHOWN}\n</parameter>\n</function>",
        "See <function=f> and </function>.",
        "<function=>\n<function= a>\n<function",
    ],
)
def test_a_text_may_show_whole_calls(text: str) -> None:
    assert _value(f"<parameter=city>\n{text}\n</parameter>\n<parameter=days>\n1\n</parameter>\n") == text


def test_a_text_that_shows_half_a_call_is_none() -> None:
    text = "<tool_call>" + _function("<parameter=city>\n<function=f>\n</parameter>\n") + "</tool_call>"
    got = answer("qwen3-xml", text)
    assert (got.content, got.calls) == (text, ())


def test_values_have_the_types_of_the_schema_and_stay_in_order() -> None:
    parameters = "".join(
        f"<parameter={key}>\n{text}\n</parameter>\n"
        for key, text in [("days", "3"), ("places", '["a",  "b"]'), ("city", "3"), ("exact", "True"), ("other", "[1]")]
    )
    got = answer("qwen3-xml", f"<tool_call>\n{_function(parameters)}\n</tool_call>")
    assert [call.arguments for call in got.calls] == [
        '{"days": 3, "places": ["a",  "b"], "city": "3", "exact": true, "other": [1]}'
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=get_weather>\n<parameter=city>\na\n<parameter=days>\n1\n</parameter>\n</function>\n</tool_call>",
        "<tool_call><function=get_weather><parameter=city>\na\n</parameter><parameter=days>\n1\n</function>\n</tool_call>",
        "<function=get_weather>\n<parameter=city>\na\n</parameter>\n<parameter=days>\n1\n</parameter>\n</function>\n",
        "<function=get_weather><parameter=city>a</parameter><parameter=days>1</parameter></function></tool",
        "<tool_call> <function=get_weather><parameter=city>a</parameter> <parameter=days>1</parameter> </function>",
    ],
)
def test_tags_that_models_forget(text: str) -> None:
    assert calls("qwen3-xml", text) == [("get_weather", {"city": "a", "days": 1})]


@pytest.mark.parametrize("between", ["</tool_call>\n<tool_call>\n", "\n", "<tool_call>", ""])
def test_several_calls(between: str) -> None:
    text = f"<tool_call>{_function('', 'get_time')}{between}{_function('', 'get_weather')}</tool_call>"
    assert calls("qwen3-xml", text) == [("get_time", {}), ("get_weather", {})]


def test_text_around_calls() -> None:
    got = answer("qwen3-xml", f"a <b> {_function('', 'get_time')} c <tool_call>{_function('', 'f')}</tool_call>\nd")
    assert (got.content, [call.name for call in got.calls]) == ("a <b>  c \nd", ["get_time", "f"])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{}",
        "<tool_call><function>",
        "<tool_call><function=a b>",
        "<function=unknown></function>",
        "<function=get_time><parameter></function>",
        "<function=get_time><parameter=></parameter></function>",
        "<function=get_time><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        "<function=get_time>text</function>",
        "</tool_call>",
    ],
)
def test_what_is_no_call_is_text(text: str) -> None:
    got = answer("qwen3-xml", f"{text}.")
    assert (got.content, got.calls) == (f"{text}.", ())


@pytest.mark.parametrize(
    "rest",
    ["", "\nrm -rf /", "\nrm -rf /\n</parameter>", "\nx\n</parameter>\n</func", "x</parameter><parameter=b", "\n<"],
)
def test_what_is_cut_is_no_call(rest: str) -> None:
    text = f"<tool_call><function=get_time><parameter=a>{rest}"
    got = answer("qwen3-xml", text)
    assert (got.content, got.calls) == (text, ())


def test_a_function_that_is_cut_before_its_arguments_is_no_call() -> None:
    for text in ("<tool_call><function=get_time", "<tool_call><function=get_time>", "<function=get_time></fun"):
        assert (answer("qwen3-xml", text).content, answer("qwen3-xml", text).calls) == (text, ())
