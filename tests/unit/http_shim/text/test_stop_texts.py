from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kakeya_http_shim.text.stop_texts import StopTexts


def _wholly(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """What a search in the whole text finds, written as plainly as can be."""
    for end in range(1, len(text) + 1):
        for start in range(end):
            if text[start:end] in stops:
                return text[:start], text[start:end]
    return text, None


def _in_pieces(pieces: Sequence[str], stops: Sequence[str]) -> tuple[list[str], str, StopTexts]:
    search = StopTexts(stops)
    return [search.push(piece) for piece in pieces], search.flush(), search


few_letters = st.text("ab", max_size=30)


@given(st.lists(few_letters, max_size=8), st.lists(st.text("ab", min_size=1, max_size=6), max_size=4))
@example(["aab"], ["ab"])
@example(["abab", "abac"], ["ababac"])
@example(["ab"], ["b", "ab"])
def test_pieces_give_what_the_whole_text_would(pieces: list[str], stops: list[str]) -> None:
    given_out, rest, search = _in_pieces(pieces, stops)
    assert ("".join(given_out) + rest, search.found) == _wholly("".join(pieces), stops)


@given(st.lists(few_letters, max_size=8), st.lists(st.text("ab", min_size=1, max_size=6), max_size=4))
def test_no_more_is_held_back_than_may_begin_a_stop_text(pieces: list[str], stops: list[str]) -> None:
    search = StopTexts(stops)
    so_far, given_out = "", ""
    for piece in pieces:
        so_far += piece
        given_out += search.push(piece)
        if search.found is not None:
            return
        beginnings = {stop[:length] for stop in stops for length in range(len(stop))}
        longest = max((begin for begin in beginnings if so_far.endswith(begin)), key=len, default="")
        assert given_out + longest == so_far


@pytest.mark.parametrize(
    ("pieces", "stops", "given_out", "rest", "found"),
    [
        (["Hel", "lo wor", "ld"], ["o w"], ["Hel", "l", ""], "", "o w"),
        (["a", "b", "c"], ["abd"], ["", "", "abc"], "", None),
        (["ab"], ["abd"], [""], "ab", None),
        (["x\n", "\ny"], ["\n\n"], ["x", ""], "", "\n\n"),
        (["abc"], ["abc", "b"], ["a"], "", "b"),
        (["xab"], ["b", "ab"], ["x"], "", "ab"),
        (["ab", "more"], ["a"], ["", ""], "", "a"),
        (["text", ""], [], ["text", ""], "", None),
    ],
)
def test_examples(pieces: list[str], stops: list[str], given_out: list[str], rest: str, found: str | None) -> None:
    given, left, search = _in_pieces(pieces, stops)
    assert (given, left, search.found) == (given_out, rest, found)


def test_what_was_flushed_is_not_given_twice() -> None:
    search = StopTexts(["ab"])
    assert (search.push("a"), search.flush(), search.flush()) == ("", "a", "")


def test_an_empty_stop_text_is_refused() -> None:
    with pytest.raises(ValueError, match="a stop text is empty"):
        StopTexts(["a", ""])


def test_a_long_text_that_nearly_stops_all_the_time_costs_a_look_at_each_letter() -> None:
    looks = 0

    class Letters(str):
        __slots__ = ()

        def __getitem__(self, place: object) -> str:
            nonlocal looks
            looks += 1
            return super().__getitem__(place)  # type: ignore[index]

    search = StopTexts([Letters("a" * 500 + "b")])
    looks = 0
    text = "".join(search.push("a") for _ in range(5000))
    assert len(text) == 4500
    assert looks < 4 * 5000
