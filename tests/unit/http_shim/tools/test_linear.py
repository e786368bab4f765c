"""No text takes more than linear time: counted are lines of code that are run, not seconds."""

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_http_shim.tools.families import SYNTAXES
from tests.unit.http_shim.tools.reading import WRITERS, deltas_of

_SHIM = "kakeya_http_shim"
_REPEATED = {
    "hermes": [
        *("<", "<tool_call>", '<tool_call>{"name": ', "<tool_call>[", '<tool_call>{"name": "f", "arguments": {"a": ['),
        *('<tool_call>{"a": "', '<tool_call>{"name": "f"}', " \n", '{"a": {', '"a": 1, ', "\\n"),
    ],
    "qwen3-xml": [
        *(
            "<",
            "<tool_call><function=f>",
            "\n<function=get_time>",
            "<parameter=a>\n",
            "\n</parameter>\n",
            "</tool_call>",
        ),
        *("<tool_call><function=f><parameter=a>\n</parameter></function", "\n</function>\n", "[", '"', "'"),
        "<tool_call>\n<function=f>\n<parameter=a>\n[[[[\n</parameter>\n</function>",
    ],
    "llama": [
        *("{", "[", "\n{", "\n[", '\n{"name": "get_time", "parameters": {', "[get_time(a=[", "<|python_tag|>"),
        *('{"name": "get_time", "parameters": {}};', "[get_time(a='\\", "get_time(a=(1,),),", "a=1, "),
    ],
    "mistral": [
        *("[", "[TOOL_CALLS]", "[TOOL_CALLS][", "[TOOL_CALLS]f[ARGS]{", '[TOOL_CALLS][{"name": "f"},', "[ARGS]"),
        *("[TOOL_CALLS]f[CALL_ID]", '[TOOL_CALLS]f[ARGS]{"a": "\\', '{"name": "f"},'),
    ],
}
_BEFORE = {
    "hermes": ["", '<tool_call>{"name": "f", "arguments": {"a": "', '<tool_call>{"name": "f", "arguments": {"a": ['],
    "qwen3-xml": [
        *("", "<tool_call>\n<function=get_weather>\n<parameter=city>\n"),
        *("<tool_call>\n<function=f>\n<parameter=a>\n", "<tool_call>\n<function=f>\n<parameter="),
    ],
    "llama": ["", '<|python_tag|>{"name": "', "<|python_start|>[", "<|python_start|>[f(a='", "<|python_start|>[f("],
    "mistral": ["", '[TOOL_CALLS]f[ARGS]{"a": "', "[TOOL_CALLS][", '[TOOL_CALLS]f[ARGS]{"a": ['],
}
_BEHIND = {"hermes": "", "llama": "", "mistral": "", "qwen3-xml": "\n</parameter>\n</function>\n</tool_call>"}


def _num_lines(family: str, pieces: Iterable[str]) -> int:
    num_lines = 0

    def trace(frame: FrameType, what: str, _argument: Any) -> Any:
        """Of the shim's own: what measures coverage has long moments of its own."""
        nonlocal num_lines
        if _SHIM not in frame.f_code.co_filename:
            return None
        num_lines += what == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        deltas_of(family, pieces)
    finally:
        sys.settrace(before)
    return num_lines


def _cases() -> list[tuple[str, str, str]]:
    return [
        (family, before, part)
        for family in sorted(SYNTAXES)
        for before in _BEFORE[family]
        for part in [*_REPEATED[family], WRITERS[family]("get_time", {"a": [1, {"b": None}]})]
    ]


def _check(family: str, before: str, part: str, cutting: Callable[[str], list[str]]) -> None:
    # So long that a quadratic part would show beside what is spent once: 64 levels of values, a call that is cut.
    number = max(1, 400 // len(part))
    shorter, longer = (before + part * times + _BEHIND[family] for times in (number, 2 * number))
    num_steps, num_more = _num_lines(family, cutting(shorter)), _num_lines(family, cutting(longer))
    assert num_more <= 2.1 * num_steps + 500


@pytest.mark.parametrize("cutting", [list, lambda text: [text]], ids=["letters", "whole"])
@pytest.mark.parametrize(("family", "before", "part"), _cases())
def test_twice_the_text_takes_twice_the_steps(
    family: str, before: str, part: str, cutting: Callable[[str], list[str]]
) -> None:
    _check(family, before, part, cutting)


@st.composite
def _texts(draw: st.DrawFn) -> tuple[str, str, str]:
    """A family, what stands before, and what comes again and again."""
    family = draw(st.sampled_from(sorted(SYNTAXES)))
    pieces = st.sampled_from([*_BEFORE[family], *_REPEATED[family], "\n", " ", "a", '"', "}"])
    before, part = (draw(st.lists(pieces, max_size=most).map("".join)) for most in (4, 5))
    return family, before, part or "<"


@given(_texts())
@settings(max_examples=15)
def test_whatever_comes_again_and_again_takes_linear_time(text: tuple[str, str, str]) -> None:
    _check(*text, list)
