"""Each gate passes a run that is as it should be, fails one that is not, and says when it cannot tell."""

import random

import pytest

from kakeya.bench.session import gates
from kakeya.bench.session.gates import FORMULAS, GATES, Measured, judge
from kakeya.bench.verdict import Outcome, Verdict, exit_status
from tests.unit.sdk.bench.series import (
    BYTES_PER_TOKEN,
    CAPACITY,
    NEW,
    RSS,
    bytes_of,
    changed,
    first_token_of,
    run,
    verdict,
)

FAILED, PASSED, UNDECIDED = Outcome.FAILED, Outcome.PASSED, Outcome.UNDECIDED
MIB = 1 << 20


def test_a_run_as_it_should_be_passes_every_gate() -> None:
    measured = Measured(run(480), 5, BYTES_PER_TOKEN, next_tokens=([1, 2], [1, 2]))
    verdicts = judge(measured)
    assert [(said.gate, said.outcome) for said in verdicts] == [(name, PASSED) for name in GATES]
    assert all(said.formula == FORMULAS[said.gate] for said in verdicts)
    assert exit_status(verdicts) == 0


@pytest.mark.parametrize("num_sessions", [1, 3])
def test_several_sessions_are_judged_together(num_sessions: int) -> None:
    turns = [turn for session in range(num_sessions) for turn in run(150, session=session)]
    said = verdict("prefill_bounded", turns)
    assert said.outcome is PASSED
    assert said.figures["num_head_turns"] == num_sessions * 14  # 150 turns less 5 of warm-up; full after 2 of them
    assert verdict("kv_bounded", turns).outcome is PASSED


def test_what_is_skipped_is_not_judged_and_says_so() -> None:
    verdicts = judge(Measured([], 5, None), skipped=["kv_bounded", "exact"])
    assert [said.outcome for said in verdicts] == [Outcome.SKIPPED, UNDECIDED, UNDECIDED, UNDECIDED, Outcome.SKIPPED]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([PASSED, PASSED], 0),
        ([PASSED, Outcome.SKIPPED], 0),
        ([PASSED, UNDECIDED], 2),
        ([UNDECIDED, FAILED, PASSED], 1),
        ([], 0),
    ],
)
def test_a_failure_outweighs_a_doubt(outcomes: list[Outcome], status: int) -> None:
    assert exit_status([Verdict("errors", outcome, "", "") for outcome in outcomes]) == status


# kv_bounded


def test_zero_bytes_fail() -> None:
    said = verdict("kv_bounded", run(480, kv_live_bytes=0))
    assert said.outcome is FAILED
    assert said.reason == "session 0 turn 1, history 38: 0 bytes, expected 38,000"


def test_zero_bytes_of_an_empty_history_fail() -> None:
    assert verdict("kv_bounded", run(480, kv_live_bytes=0, history_length=0)).outcome is FAILED


def test_bytes_that_creep_fail() -> None:
    said = verdict("kv_bounded", changed(run(480), lambda turn: {"kv_live_bytes": bytes_of(turn) + turn.index // 470}))
    assert said.outcome is FAILED
    assert said.reason.startswith("session 0 turn 470,")


def test_a_single_spike_fails() -> None:
    turns = run(480)
    turns[200:201] = changed(turns[200:201], lambda turn: {"kv_live_bytes": bytes_of(turn) + BYTES_PER_TOKEN})
    assert verdict("kv_bounded", turns).outcome is FAILED


def test_too_few_bytes_fail() -> None:
    turns = changed(run(480), lambda turn: {"kv_live_bytes": (CAPACITY - 1) * BYTES_PER_TOKEN}, start=479)
    assert verdict("kv_bounded", turns).outcome is FAILED


def test_a_history_that_never_fills_the_lane_proves_nothing() -> None:
    assert verdict("kv_bounded", run(1)).outcome is UNDECIDED
    assert "outgrew" in verdict("kv_bounded", run(1)).reason


def test_without_config_or_turns_bytes_cannot_be_judged() -> None:
    said = verdict("kv_bounded", run(480), bytes_per_token=None, why_not="no config.json")
    assert (said.outcome, said.reason) == (UNDECIDED, "no config.json")
    assert verdict("kv_bounded", []).outcome is UNDECIDED
    assert verdict("kv_bounded", run(480, error="gone")).outcome is UNDECIDED


def test_turns_that_failed_have_no_bytes_to_judge() -> None:
    turns = run(480)
    turns[100:101] = changed(turns[100:101], lambda _: {"error": "gone", "kv_live_bytes": None})
    assert verdict("kv_bounded", turns).outcome is PASSED


# rss_bounded


def test_memory_that_creeps_fails() -> None:
    said = verdict("rss_bounded", changed(run(480), lambda turn: {"worker_rss_bytes": RSS + turn.index * 50_000}))
    assert said.outcome is FAILED
    assert "+20.4 in the tail" in said.reason


def test_memory_that_creeps_within_the_allowance_passes() -> None:
    turns = changed(run(480), lambda turn: {"worker_rss_bytes": RSS + turn.index * 30_000})
    assert verdict("rss_bounded", turns).outcome is PASSED


def test_the_allowance_of_a_large_model_is_a_share_of_it() -> None:
    turns = changed(run(480, worker_rss_bytes=100 * RSS), lambda _: {"worker_rss_bytes": 102 * RSS}, start=240)
    assert verdict("rss_bounded", turns).outcome is PASSED
    turns = changed(turns, lambda _: {"worker_rss_bytes": 102 * RSS + MIB}, start=240)
    assert verdict("rss_bounded", turns).outcome is FAILED


def test_a_spike_of_memory_fails() -> None:
    turns = run(480)
    turns[240:241] = changed(turns[240:241], lambda _: {"worker_rss_bytes": RSS + 2 * gates.RSS_ALLOWANCE_BYTES + 1})
    assert verdict("rss_bounded", turns).outcome is FAILED


def test_the_warm_up_may_grow() -> None:
    turns = changed(run(480), lambda turn: {"worker_rss_bytes": RSS if turn.index > 5 else RSS // 2})
    assert verdict("rss_bounded", turns).outcome is PASSED
    assert verdict("rss_bounded", turns).figures["one"]["head_bytes"] == RSS  # type: ignore[index]


def test_each_worker_is_judged_by_itself() -> None:
    turns = run(480) + run(480, session=1, worker="two", worker_rss_bytes=3 * RSS)
    assert verdict("rss_bounded", turns).outcome is PASSED
    leaking = changed(run(480, session=1, worker="two"), lambda turn: {"worker_rss_bytes": RSS + turn.index * MIB})
    said = verdict("rss_bounded", run(480) + leaking)
    assert said.outcome is FAILED
    assert said.reason.startswith("worker two")


@pytest.mark.parametrize("rss", [None, 0])
def test_memory_that_nobody_tells_cannot_be_judged(rss: int | None) -> None:
    turns = changed(run(480), lambda _: {"worker_rss_bytes": rss}, start=479)
    said = verdict("rss_bounded", turns, why_not_rss="PermissionDenied: no operator")
    assert said.outcome is UNDECIDED
    assert said.reason == "worker one: its memory is not known in every turn; PermissionDenied: no operator"


def test_a_truncated_series_of_memory_cannot_be_judged() -> None:
    assert verdict("rss_bounded", run(104)).outcome is UNDECIDED
    assert verdict("rss_bounded", run(105)).outcome is PASSED
    assert verdict("rss_bounded", run(5)).outcome is UNDECIDED


# prefill_bounded


def _slower(factor: float, turns: int = 480, noise: float = 0.05) -> Verdict:
    """First tokens that take longer from turn to turn, in the end so many times as long."""
    series = run(turns, noise=noise)
    return verdict(
        "prefill_bounded",
        changed(
            series,
            lambda turn: {
                "time_to_first_token_seconds": first_token_of(turn) * (1 + (factor - 1) * turn.index / turns)
            },
        ),
    )


def test_a_turn_that_becomes_slower_fails() -> None:
    said = _slower(1.2)
    assert said.outcome is FAILED
    assert 1.1 < float(str(said.figures["low"])) < float(str(said.figures["ratio"])) < 1.2


def test_a_turn_that_becomes_slower_by_less_than_the_bound_passes() -> None:
    assert _slower(1.03).outcome is PASSED


def test_a_turn_that_becomes_faster_passes() -> None:
    assert _slower(0.5).outcome is PASSED


def test_prefill_linear_in_the_history_fails() -> None:
    turns = changed(run(480), lambda turn: {"time_to_first_token_seconds": 0.001 * turn.history_length})
    assert verdict("prefill_bounded", turns).outcome is FAILED


def test_spikes_in_the_tail_do_not_pass() -> None:
    turns = changed(
        run(480),
        lambda turn: {"time_to_first_token_seconds": 3.0 if turn.index % 8 == 0 else turn.time_to_first_token_seconds},
        start=400,
    )
    assert verdict("prefill_bounded", turns).outcome is FAILED
    turns = changed(run(480), lambda turn: {"time_to_first_token_seconds": 3.0 if turn.index == 470 else 0.25})
    assert verdict("prefill_bounded", turns).outcome is UNDECIDED


def test_noise_cannot_be_judged() -> None:
    draw = random.Random(0)
    turns = changed(run(480), lambda _: {"time_to_first_token_seconds": draw.expovariate(4.0)})
    said = verdict("prefill_bounded", turns)
    assert said.outcome is UNDECIDED
    assert "wider than +-10%" in said.reason


def test_what_counts_is_the_time_of_a_new_token() -> None:
    """Longer messages take longer, and that is no slow-down."""
    turns = changed(
        run(480),
        lambda turn: {
            "num_new_tokens": 2 * NEW,
            "history_length": turn.history_length + 1000,
            "time_to_first_token_seconds": 2 * first_token_of(turn),
        },
        start=240,
    )
    assert verdict("prefill_bounded", turns).outcome is PASSED


def test_head_and_tail_begin_after_plateau_and_warm_up() -> None:
    """While the lane fills a turn has less to do; were that the head, every run would fail."""
    turns = changed(
        run(480, capacity=100 * 38),
        lambda turn: {"time_to_first_token_seconds": first_token_of(turn) * min(1, turn.index / 100)},
    )
    said = verdict("prefill_bounded", turns, num_warm_up_turns=0)
    assert said.outcome is PASSED
    assert said.figures["num_head_turns"] == 38  # of 380 that began with a full lane
    slow_start = changed(run(480), lambda turn: {"time_to_first_token_seconds": 9.0 if turn.index <= 50 else 0.25})
    assert verdict("prefill_bounded", slow_start, num_warm_up_turns=50).figures["ratio"] == 1.0
    assert float(str(verdict("prefill_bounded", slow_start).figures["ratio"])) < 0.2


def test_a_truncated_series_of_first_tokens_cannot_be_judged() -> None:
    said = verdict("prefill_bounded", run(104))
    assert said.outcome is UNDECIDED
    assert "100 are needed" in said.reason
    assert verdict("prefill_bounded", run(105)).outcome is PASSED
    assert verdict("prefill_bounded", []).outcome is UNDECIDED


def test_answers_without_a_token_cannot_be_judged() -> None:
    assert verdict("prefill_bounded", run(480, time_to_first_token_seconds=None)).outcome is UNDECIDED


# errors


def test_one_error_fails() -> None:
    turns = run(480)
    turns[300:301] = changed(turns[300:301], lambda _: {"error": "WorkerLost: gone"})
    said = verdict("errors", turns)
    assert (said.outcome, said.figures["num_errors"]) == (FAILED, 1)
    assert said.reason == "1 of 480 turns; the first is session 0 turn 301: WorkerLost: gone"


def test_no_turn_is_no_success() -> None:
    assert verdict("errors", []).outcome is UNDECIDED


# exact


@pytest.mark.parametrize(
    ("replayed", "outcome", "reason"),
    [
        ([5, 6, 7], PASSED, "the same 3 tokens, 3 of them distinct"),
        ([5, 6, 8], FAILED, "they differ from token 3 on, of 3 and 3"),
        ([5, 6], FAILED, "they differ from token 3 on, of 3 and 2"),
        ([5, 6, 7, 8], FAILED, "they differ from token 4 on, of 3 and 4"),
        ([], FAILED, "they differ from token 1 on, of 3 and 0"),
    ],
)
def test_the_next_tokens_are_compared(replayed: list[int], outcome: Outcome, reason: str) -> None:
    said = verdict("exact", run(10), next_tokens=([5, 6, 7], replayed))
    assert (said.outcome, said.reason) == (outcome, reason)


def test_what_was_not_replayed_cannot_be_judged() -> None:
    assert verdict("exact", run(10), why_not_exact="NoCapacity: full").reason == "NoCapacity: full"
    assert verdict("exact", run(10)).outcome is UNDECIDED
    assert verdict("exact", run(10), next_tokens=([], [])).outcome is UNDECIDED
