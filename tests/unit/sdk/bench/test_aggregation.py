"""The figures of a run are those that NumPy finds in the same turns."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya.bench.session.aggregation import BUCKET_SECONDS, aggregate, buckets
from kakeya.bench.turn import Turn
from tests.unit.sdk.bench.series import CAPACITY, changed, run

SECONDS = st.floats(1e-6, 1e4)
BYTES = st.integers(0, 2**45)
PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
WARM_UP = 2


@st.composite
def random_turn(draw: st.DrawFn) -> Turn:
    num_new, num_out, failed = draw(st.integers(1, 500)), draw(st.integers(0, 90)), draw(st.booleans())
    return Turn(
        session=draw(st.integers(0, 3)),
        index=draw(st.integers(1, 9)),
        started_seconds=draw(st.floats(0, 9 * BUCKET_SECONDS)),
        wall_seconds=draw(SECONDS),
        capacity=CAPACITY,
        num_new_tokens=num_new,
        num_tokens_out=num_out,
        history_length=draw(st.integers(num_new + num_out, 10**6)),
        time_to_first_token_seconds=draw(SECONDS) if num_out else None,
        prefill_seconds=draw(SECONDS),
        decode_seconds=draw(SECONDS),
        kv_live_bytes=draw(BYTES),
        worker_rss_bytes=draw(st.none() | BYTES),
        num_evicted_tokens=draw(st.integers(0, 500)),
        error="failed" if failed else None,
    )


TURNS = st.lists(random_turn(), max_size=60)


def _numpy_says(found: Any, values: Sequence[float]) -> None:
    if not len(values):
        assert found is None
        return
    array = np.array(values, dtype=np.float64)
    expected = {"min": array.min(), "mean": array.mean(), "max": array.max()}
    expected |= {name: np.percentile(array, share) for name, share in PERCENTILES.items()}
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12)


def _extent(found: Any, values: Sequence[int | None]) -> None:
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if not known.size:
        assert found is None
        return
    assert (found["min"], found["max"]) == (known.min(), known.max())
    assert found["mean"] == pytest.approx(known.mean(), rel=1e-12)


SERIES: dict[str, Callable[[Turn], float | None]] = {
    "turn_s": lambda turn: turn.wall_seconds,
    "time_to_first_token_s": lambda turn: turn.time_to_first_token_seconds,
    "time_to_first_token_per_new_token_s": lambda turn: (
        None if turn.time_to_first_token_seconds is None else turn.time_to_first_token_seconds / turn.num_new_tokens
    ),
    "prefill_s": lambda turn: turn.prefill_seconds,
    "decode_s": lambda turn: turn.decode_seconds,
    "decode_per_token_s": lambda turn: (
        turn.decode_seconds / turn.num_tokens_out if turn.num_tokens_out and turn.decode_seconds else None
    ),
}


def _values(turns: Sequence[Turn], name: str) -> list[float]:
    return [value for turn in turns if (value := SERIES[name](turn)) is not None]


@given(TURNS)
def test_the_figures_of_a_run_are_numpys(turns: list[Turn]) -> None:
    agg: dict[str, Any] = aggregate(turns, WARM_UP)
    succeeded = [turn for turn in turns if turn.error is None]
    timed = [turn for turn in succeeded if turn.index > WARM_UP]
    for name in SERIES:
        _numpy_says(agg[name], _values(timed, name))
    _extent(agg["kv_live_bytes"], [turn.kv_live_bytes for turn in succeeded])
    _extent(agg["worker_rss_bytes"], [turn.worker_rss_bytes for turn in succeeded])
    assert agg["num_turns"] == len(turns)
    assert agg["num_errors"] == len(turns) - len(succeeded)
    for name, field in {
        "num_tokens_in": "num_new_tokens",
        "num_tokens_out": "num_tokens_out",
        "num_evicted_tokens": "num_evicted_tokens",
    }.items():
        assert agg[name] == sum(getattr(turn, field) for turn in succeeded)
    ordered = np.array([turn.wall_seconds for turn in sorted(timed, key=lambda turn: turn.started_seconds)])
    if tenth := len(ordered) // 10:
        drift = np.median(ordered[-tenth:]) - np.median(ordered[:tenth])
        assert agg["latency_drift_p50_s"] == pytest.approx(drift, rel=1e-9, abs=1e-9)
    else:
        assert agg["latency_drift_p50_s"] is None


@given(TURNS)
def test_each_turn_is_in_one_bucket_and_the_figures_are_numpys(turns: list[Turn]) -> None:
    found: list[dict[str, Any]] = buckets(turns)
    assert sum(bucket["num_turns"] for bucket in found) == len(turns)
    for number, bucket in enumerate(found):
        is_last = number == len(found) - 1
        inside = [
            turn
            for turn in turns
            if bucket["start_s"] <= turn.started_seconds and (is_last or turn.started_seconds < bucket["end_s"])
        ]
        # A start on the border of two buckets may fall to either by the last bit of a division.
        assert abs(bucket["num_turns"] - len(inside)) <= sum(
            math.isclose(turn.started_seconds, border)
            for turn in turns
            for border in (bucket["start_s"], bucket["end_s"])
        )
        if bucket["num_turns"] == len(inside):
            succeeded = [turn for turn in inside if turn.error is None]
            assert bucket["num_errors"] == len(inside) - len(succeeded)
            for name in ("turn_s", "time_to_first_token_s", "time_to_first_token_per_new_token_s"):
                _numpy_says(bucket[name], _values(succeeded, name))
            _extent(bucket["kv_live_bytes"], [turn.kv_live_bytes for turn in succeeded])


def test_a_short_run_is_cut_in_tenths() -> None:
    found: list[dict[str, Any]] = buckets(run(100))  # a turn a second, the last one takes about one, too
    assert len(found) == 10
    assert found[0]["start_s"] == 0.0
    assert found[-1]["end_s"] == pytest.approx(100, abs=0.1)
    assert [bucket["num_turns"] for bucket in found] == [10] * 10


def test_a_long_run_is_cut_in_ten_minutes() -> None:
    turns = changed(run(480), lambda turn: {"started_seconds": (turn.index - 1) * 30.0})
    found: list[dict[str, Any]] = buckets(turns)
    assert [bucket["num_turns"] for bucket in found] == [20] * 24
    assert [bucket["start_s"] for bucket in found] == [600.0 * number for number in range(24)]


def test_runs_of_nothing_have_no_figures() -> None:
    assert buckets([]) == []
    assert aggregate([], 5)["turn_s"] is None
    (only,) = buckets(run(1, started_seconds=0.0, wall_seconds=0.0))
    assert only["num_turns"] == 1


def test_a_drift_is_seen() -> None:
    turns = changed(run(100, wall_seconds=1.0), lambda _: {"wall_seconds": 1.5}, start=50)
    assert aggregate(turns, 0)["latency_drift_p50_s"] == 0.5
