import pytest

from tests.unit.http_shim.tools.reading import answer, calls


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"arguments": {"name": "b"}, "name": "g"}]',
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}},{"name": "g", "arguments": {"name": "b"}}',
        '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{"name": "b"}',
        '[TOOL_CALLS] f[CALL_ID]abc[ARGS] {"a": 1}\n[TOOL_CALLS]g{"name": "b"}',
    ],
)
def test_all_forms_of_two_calls(text: str) -> None:
    assert calls("mistral", text) == [("f", {"a": 1}), ("g", {"name": "b"})]


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS]f[ARGS][1]",
        "[TOOL_CALLS]{}",
        "[TOOL_CALLS][]",
        '[TOOL_CALLS]["f"]',
        '[TOOL_CALLS][{"name": "f"}; 1]',
        "[TOOL_CALLS]f[TOOL",
        "[TOOL_CALLS]f(1)",
        "[TOOL_CALLS]f[ARG {}",
        "[TOOL_CALLS]f[CALL_ID]a[b",
    ],
)
def test_what_is_no_call_is_text(text: str) -> None:
    got = answer("mistral", f"{text} ...")
    assert (got.content, got.calls) == (f"{text} ...", ())


@pytest.mark.parametrize("rest", [', {"name": "g", "arg', ",", ", "])
def test_calls_of_an_array_that_is_cut_count_where_they_are_whole(rest: str) -> None:
    got = answer("mistral", f'Well.\n[TOOL_CALLS] [{{"name": "f"}}{rest}')
    assert ([call.name for call in got.calls], got.content, got.unfinished) == (["f"], "Well.", rest)


def test_what_is_malformed_in_an_array_is_text() -> None:
    got = answer("mistral", '[TOOL_CALLS] [{"name": "f"}, 5]')
    assert ([call.name for call in got.calls], got.content) == (["f"], ", 5]")


@pytest.mark.parametrize("rest", ["", "[AR", "[CALL_ID]ab", "[ARGS]", '[ARGS]{"a": "b'])
def test_what_is_cut_is_no_call(rest: str) -> None:
    text = f"[TOOL_CALLS]f{rest}"
    got = answer("mistral", text)
    assert (got.content, got.calls) == (text, ())
    assert answer("mistral", f"[TOOL_CALLS]g[ARGS]{{}}{text}").unfinished == text


def test_text_goes_on_behind_arguments() -> None:
    got = answer("mistral", "a[TOOL_CALLS]f[ARGS]{} b [x]")
    assert ([call.name for call in got.calls], got.content) == (["f"], "a b [x]")
