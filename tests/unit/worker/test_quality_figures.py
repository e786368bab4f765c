"""The quality bench's arithmetic: shares, buckets, means, floors, plans."""

import argparse
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_worker.engine.seams.verifier import ModelFacts
from kakeya_worker.quality import perplexity, plan, recall
from kakeya_worker.quality.configuration import Configuration
from kakeya_worker.quality.failure import CannotMeasure
from kakeya_worker.quality.floors import FLOORS, Floor, exit_status
from kakeya_worker.quality.multi_turn import Answer
from kakeya_worker.quality.multi_turn import summarize as summarize_multi_turn
from kakeya_worker.quality.options import Options, parse
from kakeya_worker.quality.perplexity import Text
from kakeya_worker.quality.recall import Outcome
from kakeya_worker.quality.script import ANSWER_TOKENS
from kakeya_worker.quality.share import NONE, Share
from kakeya_worker.quality.sight import Sight

BOTH = ("int8", "float32")
CONFIGURATION = Configuration("float32", "sink-window", 4, 64)


def facts(max_positions: int = 1024, kv_bytes_per_token: int = 3072) -> ModelFacts:
    return ModelFacts(
        "torch", "float32", "float32", False, "f", 2048, max_positions, "as the test says", kv_bytes_per_token
    )


@pytest.mark.parametrize(
    ("hits", "num", "low", "high"),
    [(8, 10, 0.490162, 0.943318), (0, 10, 0.0, 0.277533), (10, 10, 0.722467, 1.0), (0, 0, 0.0, 1.0)],
)  # of R's binom::binom.wilson
def test_intervals_are_wilsons(hits: int, num: int, low: float, high: float) -> None:
    assert Share(hits, num).interval == pytest.approx((low, high), abs=1e-6)


@given(st.integers(1, 500).flatmap(lambda num: st.tuples(st.integers(0, num), st.just(num))))
def test_a_share_lies_in_its_interval(counts: tuple[int, int]) -> None:
    share = Share(*counts)
    assert share.value is not None
    low, high = share.interval
    assert 0 <= low <= share.value + 1e-12
    assert share.value - 1e-12 <= high <= 1


def test_shares_add_up() -> None:
    assert Share.of([True, False, True]) + Share(1, 1) == Share(3, 4)
    assert NONE.value is None
    assert str(NONE) == "-"
    assert str(Share(1, 2)) == "50.0% (9.5% to 90.5%, n = 2)"


@given(st.integers(1, 100), st.integers(1, 2000))
def test_buckets_double_and_leave_nothing_out(capacity: int, num_positions: int) -> None:
    buckets = list(perplexity.bounds(capacity, num_positions))
    assert buckets[0][0] == 0
    assert buckets[-1][1] == num_positions
    assert all(before[1] == after[0] for before, after in pairwise(buckets))
    assert [start for start, _ in buckets[1:]] == [capacity * 2**power for power in range(len(buckets) - 1)]


@given(st.integers(1, 2000))
def test_intervals_are_equal_and_leave_nothing_out(num_positions: int) -> None:
    intervals = perplexity.intervals(num_positions)
    assert intervals[0][0] == 0
    assert intervals[-1][1] == num_positions
    assert all(before[1] == after[0] for before, after in pairwise(intervals))
    lengths = [stop - start for start, stop in intervals]
    assert max(lengths) - min(lengths) <= 1


def test_perplexity_is_the_exponential_of_the_mean_loss() -> None:
    texts = [Text((1, 2, 3, 4), (False, False, True, True)), Text((5, 6), (False, True))]
    losses = [np.array([1.0, 2.0, 3.0]), np.array([6.0])]
    whole = perplexity.between(texts, losses, 0, 3)
    assert (whole.num_tokens, whole.num_answer_tokens) == (4, 3)
    assert whole.value == pytest.approx(math.exp(12 / 4))
    assert whole.of_answers == pytest.approx(math.exp((2 + 3 + 6) / 3)), "a loss belongs to the token that it predicts"
    first = perplexity.between(texts, losses, 0, 1)
    assert first.num_tokens == 2
    assert first.value == pytest.approx(math.exp(3.5))
    nothing = perplexity.between(texts, losses, 3, 9)
    assert (nothing.num_tokens, nothing.value, nothing.of_answers) == (0, None, None)


def test_perplexity_is_told_by_bucket_beside_full_attention() -> None:
    texts = [Text(tuple(range(301)), (True,) * 301)]
    losses, reference = [np.repeat([1.0, 2.0], [68, 232])], [np.ones(150)]
    found = perplexity.summarize(CONFIGURATION, texts, losses, reference)
    assert [(each.start, each.stop) for each in found.buckets] == [(0, 68), (68, 136), (136, 272), (272, 300)]
    assert [each.value for each in found.buckets] == pytest.approx([math.e, *[math.e**2] * 3])
    assert [None if each is None else each.value for each in found.full_attention] == [
        pytest.approx(math.e), pytest.approx(math.e), None, None,
    ]  # fmt: skip
    assert (found.past_the_wrap.start, found.past_the_wrap.num_tokens) == (68, 232)
    assert found.past_the_wrap.value == pytest.approx(math.e**2)
    assert found.whole.num_tokens == 300
    assert len(found.curve) == perplexity.NUM_INTERVALS
    assert all(each.stop <= 150 for each in perplexity.curve(texts, reference))


def outcome(target: int, recalled: bool, *, telling: int = 10) -> Outcome:
    """At a distance two tokens below its target."""
    return Outcome(target, Sight(target - 2, target - 1 - telling), recalled, ())


def test_recall_falls_where_less_than_half_is_recalled() -> None:
    outcomes = [
        outcome(target, recalled)
        for target, recalls in ((16, (1, 1)), (30, (1, 1)), (64, (1, 0)), (128, (0, 0)), (160, (0, 1)))
        for recalled in map(bool, recalls)
    ]
    found = recall.summarize(CONFIGURATION, "user", outcomes, 2)
    assert [(at.target, at.distance, at.recalled.hits) for at in found.by_distance] == [
        (16, 14, 2), (30, 28, 2), (64, 62, 1), (128, 126, 0), (160, 158, 1),
    ]  # fmt: skip
    assert found.falls_at == 126
    assert not found.stays_fallen, "half is recalled at the distance after it"
    assert recall.summarize(CONFIGURATION, "user", outcomes[:8], 2).stays_fallen
    assert found.inside == Share(4, 4), "of what stays in sight to the end of an answer of 32 tokens"
    assert found.anywhere == Share(6, 10)
    assert recall.summarize(CONFIGURATION, "user", outcomes[:4], 2).falls_at is None


def test_recall_falls_only_where_enough_was_asked() -> None:
    outcomes = [outcome(16, False), *(outcome(30, True) for _ in range(2)), outcome(128, False), outcome(160, True)]
    found = recall.summarize(CONFIGURATION, "user", outcomes, 2)
    assert (found.falls_at, found.stays_fallen) == (None, False)
    assert [at.target for at in found.well_sampled] == [30]


def test_the_worst_distance_is_judged_and_not_all_of_them_together() -> None:
    near = [outcome(16, True) for _ in range(90)]
    edge = [outcome(34, index < 5) for index in range(10)]
    rare = [outcome(20, False) for _ in range(9)]
    found = recall.summarize(CONFIGURATION, "user", [*near, *edge, *rare], 10)
    assert found.inside == Share(95, 109)
    assert found.lowest_inside == 0.5, "not 0.0 of what was rarely asked, nor 0.87 of all"
    assert found.lowest_beyond is None


def test_beyond_is_what_the_window_alone_does_not_see() -> None:
    seen = [outcome(64, True), outcome(70, True), outcome(76, True)]  # the last token at 53, 59 and 65, W = 64
    found = recall.summarize(CONFIGURATION, "system", [*seen, outcome(300, False)], 1, is_pinned=True)
    assert [at.beyond for at in found.by_distance] == [NONE, NONE, Share(1, 1), Share(0, 1)]
    assert found.lowest_beyond == 0.0
    assert recall.summarize(CONFIGURATION, "system", seen[:2], 1, is_pinned=True).lowest_beyond is None


@pytest.mark.parametrize(("first", "last", "whole", "gone"), [
    (32, 20, True, False), (33, 21, False, False), (70, 63, False, False), (80, 64, False, True),
])  # fmt: skip
def test_a_telling_is_in_sight_as_a_whole_or_gone_as_a_whole(first: int, last: int, whole: bool, gone: bool) -> None:
    assert (Sight(first, last).is_whole(64), Sight(first, last).is_gone(64)) == (whole, gone)


def test_multi_turn_recall_is_told_by_what_was_in_sight() -> None:
    sights = [(20, 10), (32, 20), (33, 23), (70, 63), (80, 64)]
    answers = [Answer(Sight(*each), recalled) for each, recalled in zip(sights, [True] * 4 + [False], strict=True)]
    found = summarize_multi_turn(CONFIGURATION, answers)
    assert (found.in_sight, found.out_of_sight) == (Share(2, 2), Share(0, 1))


def test_a_pin_takes_from_the_window() -> None:
    assert CONFIGURATION.pinned(30) == Configuration("float32", "sink-window", 30, 38)
    assert CONFIGURATION.pinned(2) == CONFIGURATION
    assert str(CONFIGURATION) == "float32 sink-window S=4 W=64"


def test_floors_are_read_and_judged() -> None:
    least, most = Floor.parse("recall_inside=0.95"), Floor.parse("int8_recall_loss=0.01")
    verdicts = [floor.judge(figure).verdict for floor, figure in [(least, 0.95), (least, 0.9499), (least, None)]]
    assert verdicts == ["met", "not met", "not measured"]
    verdicts = [floor.judge(figure).verdict for floor, figure in [(most, -0.2), (most, 0.011), (most, math.nan)]]
    assert verdicts == ["met", "not met", "not measured"]
    assert str(least.judge(0.5)) == "recall_inside = 0.5000, at least 0.95: not met"
    assert str(most.judge(None)) == "int8_recall_loss = -, at most 0.01: not measured"


def test_the_exit_status_is_that_of_the_worst_floor() -> None:
    floor = Floor.parse("recall_inside=0.5")
    met, broken, unknown = floor.judge(1.0), floor.judge(0.0), floor.judge(None)
    assert exit_status([]) == 0
    assert exit_status([met]) == 0
    assert exit_status([met, unknown]) == 2
    assert exit_status([unknown, broken, met]) == 1


@pytest.mark.parametrize("text", ["recall=0.5", "recall_inside", "recall_inside=x", "recall_inside=95", "=", ""])
def test_a_floor_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        Floor.parse(text)
    with pytest.raises(SystemExit) as raised:
        parse(["--model", "m", "--floor", text])
    assert raised.value.code == 2


def test_options_are_read() -> None:
    argv = (
        "--model m --weights int8,float32 --windows 64,128 --sinks 4,0,4 --distances 16,32 --samples 5 --seed 7 "
        "--threads 1 --text t.txt --output o --floor recall_inside=0.9 --floor int8_recall_loss=0.01 "
        "--policies a,b --full"
    )
    options = parse(argv.split())
    assert (options.weights, options.windows, options.sinks, options.distances) == (
        ("int8", "float32"), (64, 128), (4, 0), (16, 32),
    )  # fmt: skip
    assert (options.num_samples, options.seed, options.num_threads, options.is_full) == (5, 7, 1, True)
    assert [floor.name for floor in options.floors] == ["recall_inside", "int8_recall_loss"]
    assert options.policies == ("a", "b")


def test_by_default_all_installed_policies_are_measured() -> None:
    options = parse(["--model", "m"])
    assert "sink-window" in options.policies
    assert (options.weights, options.sinks, options.windows) == (("auto", "float32", "int8"), (0, 4), None)
    assert options.num_samples > parse(["--model", "m", "--quick"]).num_samples


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--model", "m", "--windows", "0"],
        ["--model", "m", "--sinks", "-1"],
        ["--model", "m", "--weights", "int4"],
        ["--model", "m", "--weights", "float32,auto"],
        ["--model", "m", "--samples", "x"],
    ],
)
def test_options_that_make_no_sense_are_usage_errors(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(argv)
    assert raised.value.code == 2


def test_the_default_plan_suits_the_models_positions() -> None:
    options = Options("m")
    assert plan.make(options, facts(1024)).windows == (128, 256, 1020)
    assert plan.make(options, facts(40960)).windows == (128, 256, 1020)
    assert plan.make(options, facts(200)).windows == (128, 196)
    assert plan.make(options, facts(40)).windows == (36,)
    assert plan.make(Options("m", is_quick=True), facts(1024)).windows == (256,)


def test_windows_that_exceed_the_models_positions_are_refused() -> None:
    with pytest.raises(CannotMeasure, match=r"sinks 4 \+ window 1021 do not fit 1024 positions, as the test says"):
        plan.make(Options("m", windows=(64, 1021)), facts(1024))


def test_every_sink_count_gets_the_same_memory() -> None:
    whole = plan.make(Options("m", weights=("float32",), policies=("a", "b"), windows=(256, 64)), facts())
    configurations = list(whole.configurations("float32"))
    assert [(each.policy, each.sink, each.window) for each in configurations] == [
        (policy, *divided) for policy in "ab" for divided in ((0, 68), (4, 64), (0, 260), (4, 256))
    ]
    geometry = whole.geometry(longest_probe=70)
    assert geometry.chunk == 80
    assert geometry.capacity == 260
    assert whole.reference_geometry.capacity == whole.reference_length


def test_other_modes_are_measured_where_they_are_compared_or_whole() -> None:
    compared = list(plan.make(Options("m", weights=BOTH), facts()).configurations("float32"))
    assert compared == [Configuration("float32", "sink-window", 4, 256)]
    whole = plan.make(Options("m", weights=BOTH, is_full=True), facts())
    assert len(list(whole.configurations("int8"))) == len(list(whole.configurations("float32"))) == 6


def test_everything_is_measured_at_the_middle_window_and_the_costly_only_there() -> None:
    whole = plan.make(Options("m", weights=BOTH), facts())
    measured = list(whole.configurations("int8"))
    with_dialogues = [(each.sink, each.window) for each in measured if whole.has_dialogues(each)]
    assert with_dialogues == [(4, 128), (0, 260), (4, 256), (4, 1020)]
    assert [each.window for each in measured if whole.has_system_facts(each)] == [256]
    (other,) = whole.configurations("float32")
    assert (whole.has_dialogues(other), whole.has_system_facts(other), whole.is_compared(other)) == (False, False, True)
    assert [each for each in measured if whole.is_compared(each)] == [Configuration("int8", "sink-window", 4, 256)]
    assert not plan.make(Options("m", weights=("int8",)), facts()).is_compared(measured[3])
    full = plan.make(Options("m", weights=BOTH, is_full=True), facts())
    assert all(map(full.has_dialogues, measured))
    assert sum(map(full.has_system_facts, measured)) == 3


def test_300_questions_in_sight_are_compared_by_default() -> None:
    whole = plan.make(Options("m"), facts())
    assert whole.num_compared >= 300
    assert whole.compared_distances[-1] == 224 == whole.middle_window - ANSWER_TOKENS


def test_what_is_judged_was_asked_16_times_or_in_every_dialogue() -> None:
    assert [plan.make(Options("m", num_samples=num), facts()).enough for num in (2, 16, 18, 100)] == [2, 16, 16, 16]
    assert parse(["--model", "m", "--quick"]).num_samples >= 16


def test_small_windows_are_asked_at_fewer_distances_unless_they_are_given() -> None:
    whole = plan.make(Options("m"), facts())
    assert whole.distances[-1] == 2150
    assert whole.distances_of(68)[-1] == 176
    assert whole.distances_of(1024) == whole.distances
    assert plan.make(Options("m", distances=(900, 16)), facts()).distances_of(68) == (16, 900)


def test_full_attention_reaches_as_far_as_the_positions_or_the_text() -> None:
    assert plan.make(Options("m"), facts(1024)).reference_length == 1024
    assert plan.make(Options("m"), facts(40960)).reference_length == plan.make(Options("m"), facts()).text_length - 1


def test_as_many_lanes_as_fit() -> None:
    whole = plan.make(Options("m"), facts())
    geometry = whole.geometry(longest_probe=70)
    assert plan.num_lanes(facts(), geometry) == plan.MOST_LANES
    far = facts(max_positions=40960, kv_bytes_per_token=40_000)
    assert plan.make(Options("m"), far).geometry(70) == geometry, "full attention takes no lanes from what forgets"
    assert plan.num_lanes(facts(kv_bytes_per_token=1 << 20), geometry) < 2
    assert plan.num_lanes(facts(kv_bytes_per_token=1 << 30), geometry) == 1


def test_there_are_floors_for_all_that_is_promised() -> None:
    assert set(FLOORS) == {
        "recall_inside", "recall_pinned", "multi_turn_recall", "int8_recall_loss", "int8_perplexity_loss",
    }  # fmt: skip
