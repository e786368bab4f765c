"""The pictures of `kakeya bench session`."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from kakeya.bench.pictures import Picture
from kakeya.bench.session import latency_picture, memory_picture, prefill_picture
from kakeya.bench.session.played import Played
from tests.unit.sdk.bench.drawn import drawn_lines, words
from tests.unit.sdk.bench.session_document import CASES, TOKEN_BYTES, document, failed, turns

Draw = Callable[[Played], Picture]


def drawn(draw: Draw, document: dict[str, Any]) -> str:
    """All words of one of the pictures."""
    return words(draw(Played.of(document)))


@cache
def case(draw: Draw, name: str) -> str:
    """All words of a picture of a case."""
    return drawn(draw, CASES[name])


@pytest.mark.parametrize(
    ("name", "draw", "says"),
    [
        ("no turn", latency_picture.draw, "no turn was played"),
        ("no turn", memory_picture.draw, "no turn was played"),
        ("no turn", prefill_picture.draw, "no turn was played"),
        ("only errors", latency_picture.draw, "no turn succeeded"),
        ("only errors", memory_picture.draw, "no turn succeeded"),
        ("only errors", prefill_picture.draw, "no turn succeeded"),
        ("no first token", prefill_picture.draw, "no turn had a first token"),
        ("no memory", memory_picture.draw, "the memory of the worker is not known: it takes an operator's key"),
    ],
)
def test_a_picture_says_why_it_is_empty(name: str, draw: Draw, says: str) -> None:
    assert says in case(draw, name)


def test_memory_is_not_unknown_where_there_was_no_turn() -> None:
    assert case(memory_picture.draw, "no turn").count("no turn was played") == 2
    assert case(memory_picture.draw, "only errors").count("no turn succeeded") == 2


def test_no_picture_says_so_that_is_not() -> None:
    for draw in (latency_picture.draw, memory_picture.draw, prefill_picture.draw):
        assert "no turn" not in case(draw, "plain")
        assert "not known" not in case(draw, "plain")


def test_latency_is_of_each_session_and_of_all_where_they_are_many() -> None:
    few = drawn(latency_picture.draw, document([turn for number in range(6) for turn in turns(9, session=number)]))
    assert [line for line in few.splitlines() if "session " in line] == [f"session {number}" for number in range(6)] * 2
    many = drawn(latency_picture.draw, document([turn for number in range(7) for turn in turns(9, session=number)]))
    assert many.count("all 7 sessions") == 2
    assert "session 0" not in many


def test_latency_shows_warm_up_and_errors() -> None:
    shown = case(latency_picture.draw, "plain")
    assert "warm-up" in shown
    assert "failed" not in shown
    assert "median of 13" in shown
    marked = latency_picture.draw(Played.of(document([*turns(300), *(failed(index) for index in range(301, 1_301))])))
    assert "failed: 1,000" in words(marked)
    assert "no turn succeeded" not in words(marked)
    assert "turn latency (ms)" in words(marked), "the 600 s that a turn took that failed are no latency"
    assert marked.svg.count("<use ") < 1_000, "not each of them is marked"
    assert "warm-up" not in case(latency_picture.draw, "no warm-up")
    assert "failed: 1" in case(latency_picture.draw, "an error first")


def test_one_stall_does_not_flatten_all_other_turns() -> None:
    played = turns(50)
    played[20] = replace(played[20], wall_seconds=60.0)
    assert "logarithmic" in drawn(latency_picture.draw, document(played))


def test_memory_shows_what_config_json_demands() -> None:
    shown = case(memory_picture.draw, "two windows")
    for capacity in (68, 240):
        assert f"{capacity * TOKEN_BYTES:,} bytes by\nconfig.json for\nS + W = {capacity} tokens" in shown
    assert "kv_live_bytes (KiB)" in shown
    assert "config.json" not in case(memory_picture.draw, "no config")


def test_memory_shows_what_the_gate_allows_where_it_judged() -> None:
    judged = case(memory_picture.draw, "plain")
    assert "allowed: 16.0 MiB for the\nmedian of the last tenth" in judged
    assert "allowed: 32.0 MiB for the\nmaximum" in judged
    for name in ("one turn", "no memory", "some memory", "gates skipped"):
        assert "allowed" not in case(memory_picture.draw, name)


def test_memory_of_a_worker_that_the_gate_did_not_judge_is_not_compared() -> None:
    played = [*turns(130, worker="long"), *turns(20, session=1, worker="short")]
    shown = drawn(memory_picture.draw, document(played)).splitlines()
    assert (shown.count("long"), shown.count("short")) == (2, 1)


def test_memory_names_the_first_of_many_lines() -> None:
    played = [turn for number in range(20) for turn in turns(3, session=number, worker=f"worker-{number:02}")]
    shown = drawn(memory_picture.draw, document(played)).splitlines()
    assert [line for line in shown if line.startswith("worker-")] == [f"worker-{number:02}" for number in range(12)]
    assert shown.count("and 8 more") == 2


def test_a_leak_of_one_turn_is_seen_among_thousands() -> None:
    played = turns(5_000)
    played[2_501] = replace(played[2_501], kv_live_bytes=3 * 368_640)
    picture = memory_picture.draw(Played.of(document(played)))
    assert "\n1,000\n" in words(picture), "the axis reaches 1,080 KiB"
    kv = drawn_lines(picture)[0]
    heights = sorted(y for _, y in kv)  # from the top on
    assert heights[1] - heights[0] > 50


def test_prefill_marks_what_the_gate_compares() -> None:
    shown = case(prefill_picture.draw, "plain")
    steady = [turn for turn in turns(130) if turn.index > 5 and turn.is_after_plateau]
    for name, stretch in (("head", steady[: len(steady) // 10]), ("tail", steady[-(len(steady) // 10) :])):
        seconds = sum(turn.time_to_first_token_seconds or 0.0 for turn in stretch)
        cost = seconds / sum(turn.num_new_tokens for turn in stretch)
        assert f"{name}: {cost * 1e3:.3f} ms a token\nin {len(stretch)} turns" in shown
    assert "S + W = 240 tokens" in shown
    assert CASES["plain"]["gates"]["prefill_bounded"]["figures"]["num_head_turns"] == len(steady) // 10


def test_prefill_leaves_out_a_turn_without_new_tokens() -> None:
    played = turns(30)
    played[7] = replace(played[7], num_new_tokens=0)
    assert "median of 5" in drawn(prefill_picture.draw, document(played))


def test_prefill_marks_nothing_where_the_gate_had_too_little() -> None:
    shown = drawn(prefill_picture.draw, document(turns(60)))
    assert "head" not in shown
    assert "tail" not in shown
    assert "S + W" in shown
