"""Whatever a template does to a marked text, it does to the text that is meant."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kakeya_nano
from kakeya.text.chat_template import ChatTemplate
from kakeya.text.control_tokens import ControlTokens
from kakeya.text.rendering.marked_text import MarkedText, StandIns, bare, has_stand_ins
from kakeya.text.tokenizer_error import TokenizerError
from kakeya.text.tokenizer_loading import load

PIECES = [
    "<|im_end|>",
    "<think>",
    "</think>",
    "<",
    "|>",
    "im",
    "_",
    " ",
    "\n",
    "\t",
    "ß",
    "é",
    "ǆ",
    "漢",
    "A",
    "a",
    '"',
    "\\",
]
PIECES += ["\r\n", "%", "{", "}", "1", "'", "\u2028", "X"]

EXPRESSIONS = (Path(__file__).parent.parent / "expressions.txt").read_text("utf-8").splitlines()
"""Of two texts, `c` and `d`: each method and filter that templates use."""


def expression_template(expression: str) -> str:
    """Writes what an expression makes of two messages' contents."""
    return (
        "{% set c = messages[0].content %}{% set d = messages[-1].content %}{% if messages | length == 2 %}"
        "{{ " + expression + " }}{% else %}{% for m in messages %}{{ m.content }}{% endfor %}{% endif %}"
    )


@pytest.fixture(scope="module")
def control() -> ControlTokens:
    return load(str(Path(kakeya_nano.__file__).parent / "kakeya-nano"))[0].control


def _written(template: ChatTemplate, text: str, other: str) -> str:
    try:
        messages = [{"role": "user", "content": text}, {"role": "user", "content": other}]
        return template.unmarked(template.render(messages))
    except TokenizerError as error:
        return str(error)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_done_to_a_marked_text_is_done_to_what_is_meant(control: ControlTokens, expression: str) -> None:
    source = expression_template(expression)
    bare, marking = ChatTemplate(source, "it", {}), ChatTemplate(source, "it", {}, control)
    texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)

    @given(texts, texts)
    @example("", "<")
    @example("imim", "<|im_end|>")
    @example("<|im_end|>", "imim")
    @example("<think> \n", "<think>")
    @example("<|ß|>", "|")
    @example("{<|im_end|>}", "")
    @settings(max_examples=25, deadline=None)
    def same(text: str, other: str) -> None:
        assert _written(marking, text, other) == _written(bare, text, other)

    same()


@pytest.fixture
def marked() -> MarkedText:
    stand_ins = StandIns("<>|")
    return stand_ins.text_type(stand_ins.mark("<a|b>"))


def test_a_marked_text_behaves_as_the_one_that_is_meant(marked: MarkedText) -> None:
    assert has_stand_ins(marked)
    assert marked == "<a|b>"
    assert {"<a|b>": 1}[marked] == 1
    assert bare(marked) != "<a|b>"
    assert len(marked) == 5
    assert [int(marked._stand_ins.text_type(" 12 ")), float(marked._stand_ins.text_type("1.5"))] == [12, 1.5]
    for piece in (*marked, marked[1:], marked + "x", "x" + marked, marked.upper(), *marked.split("|")):
        assert isinstance(piece, MarkedText)


def test_what_is_put_beside_a_marked_text_is_not_marked(marked: MarkedText) -> None:
    beside = ("<" + marked + ">").strip()
    assert [has_stand_ins(letter) for letter in bare(beside)] == [False, True, False, True, False, True, False]
    assert marked._stand_ins.unmark(beside) == "<<a|b>>"
    assert not has_stand_ins(bare(beside.replace("<a|b>", "")))


def test_stand_ins_are_used_up(marked: MarkedText) -> None:
    stand_ins = StandIns(map(chr, range(0x4E00, 0x4E00 + 0x800)))
    assert not stand_ins.add("<")
    assert "<" not in stand_ins
    assert stand_ins.add(["\u4e00"]), "it has one"
    assert stand_ins.mark("<") == "<"


def test_halves_of_characters() -> None:
    assert [has_stand_ins(text) for text in ("a", "é", "\ud800", "𝄞")] == [False, False, True, False]


def test_what_was_read_is_not_read_again(marked: MarkedText) -> None:
    first: Any = marked._meant
    assert marked._meant is first
