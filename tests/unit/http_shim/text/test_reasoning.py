import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kakeya_http_shim.text.reasoning import ReasoningSplit


def _split(pieces: Sequence[str], *, enabled: bool = True, starts_inside: bool = False) -> tuple[str, str]:
    split = ReasoningSplit(enabled, starts_inside)
    pairs = [*(split.push(piece) for piece in pieces), split.flush()]
    assert split.flush() == ("", ""), "given twice"
    return "".join(thought for thought, _ in pairs), "".join(answer for _, answer in pairs)


def _wholly(text: str, *, starts_inside: bool) -> tuple[str, str]:
    """What the whole text is, by a pattern for all of it."""
    begin = r"()" if starts_inside else r"(\s*)<think>"
    match = re.fullmatch(rf"{begin}\n*(.*?)(?:</think>\n*(.*))?", text, re.DOTALL)
    return (match[1] + match[2], match[3] or "") if match else ("", text)


parts = st.sampled_from(["<think>", "</think>", "\n", " ", "a", "b", "<", "</", "think", ">", "<think", "</think"])
texts = st.lists(parts, max_size=12).map("".join)


@given(texts, st.lists(st.integers(0, 60), max_size=12), st.booleans())
@example("<think>\n\na\n</think>\n\nb", [], False)
@example("<think></think></think>", [], False)
def test_pieces_give_what_the_whole_text_would(text: str, cuts: list[int], starts_inside: bool) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(borders)]
    assert _split(pieces, starts_inside=starts_inside) == _wholly(text, starts_inside=starts_inside)


@given(st.lists(texts))
def test_a_model_that_does_not_think_only_answers(pieces: list[str]) -> None:
    assert _split(pieces, enabled=False) == ("", "".join(pieces))


@pytest.mark.parametrize("pieces", [["<think>\nso\n</think>\n\nYes"], [*"<think>\nso\n</think>\n\nYes"]])
def test_the_tags_and_the_line_feeds_behind_them_are_nobodys(pieces: list[str]) -> None:
    assert _split(pieces) == ("so\n", "Yes")


@pytest.mark.parametrize(
    ("text", "starts_inside", "expected"),
    [
        ("\n <think>so</think>Yes", False, ("\n so", "Yes")),
        ("Yes <think>so</think>", False, ("", "Yes <think>so</think>")),
        ("  Yes", False, ("", "  Yes")),
        (" <thin", False, ("", " <thin")),
        ("\nso</think>Yes</think>", True, ("so", "Yes</think>")),
        ("so</thin", True, ("so</thin", "")),
        ("<think></think>", False, ("", "")),
    ],
)
def test_examples(text: str, starts_inside: bool, expected: tuple[str, str]) -> None:
    assert _split([*text], starts_inside=starts_inside) == expected


def test_no_more_is_held_back_than_may_become_a_tag() -> None:
    split = ReasoningSplit(enabled=True, starts_inside=False)
    said = [split.push(piece) for piece in [" ", "<thi", "nk>so", " <", "/b", "</think", ">Yes <"]]
    assert said == [("", ""), ("", ""), (" so", ""), (" ", ""), ("</b", ""), ("", ""), ("", "Yes <")]


_CALL = "<tool_call>\n<f="
_others = st.sampled_from(
    ["[THINK]", "[/THINK]", "\n", "a", "[", "[/", "<tool_call>", "<f=", "<", "</think>", "<think>"]
)


@given(st.lists(_others, max_size=12).map("".join), st.lists(st.integers(0, 60), max_size=12), st.booleans())
@example("\na<tool_call>\n<f=[/THINK]", [], True)
@example("a[/THINK]\n<tool_call>\n<f=", [5], True)
def test_other_tags_and_a_call_that_ends_a_thought(text: str, cuts: list[int], starts_inside: bool) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    split = ReasoningSplit(True, starts_inside, ("[THINK]", "[/THINK]"), answer_begins=_CALL)
    pairs = [*(split.push(text[start:end]) for start, end in pairwise(borders)), split.flush()]
    begin = r"()" if starts_inside else r"(\s*)\[THINK\]"
    match = re.fullmatch(rf"{begin}\n*(.*?)(?:\[/THINK\]\n*(.*)|({_CALL}.*))?", text, re.DOTALL)
    thought, answer = (match[1] + match[2], (match[3] or "") + (match[4] or "")) if match else ("", text)
    assert ("".join(thought for thought, _ in pairs), "".join(answer for _, answer in pairs)) == (thought, answer)
