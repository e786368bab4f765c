"""Each gate passes a run that is as it should be, fails one that is not, and says when it cannot tell."""

import random
from dataclasses import replace

import pytest

from kakeya_bench.conversation.turn import Turn
from kakeya_bench.report.verdict import Outcome, exit_status
from kakeya_bench.session import gates, settings
from kakeya_bench.session.gates import GATES, RSS_ALLOWANCE_BYTES
from tests.unit.bench.session.runs import BYTES_PER_TOKEN, CAPACITY, FACTS, NEW, RSS, but, changed, report, run, verdict

FAILED, PASSED, UNDECIDED = Outcome.FAILED, Outcome.PASSED, Outcome.UNDECIDED
MIB = 1 << 20
GOOD = run(480)


def kv(bytes_of_turn: int) -> dict[str, int]:
    return {"kv_live_bytes": bytes_of_turn}


def rss(size: int | None) -> dict[str, int | None]:
    return {"worker_rss_bytes": size}


def first(turn: Turn, factor: float) -> dict[str, float]:
    """A first token that took so many times as long."""
    return {"time_to_first_token_seconds": factor * (turn.time_to_first_token_seconds or 0.0)}


def slower(factor: float) -> list[Turn]:
    """First tokens that take longer from turn to turn, in the end so many times as long."""
    return changed(GOOD, lambda turn: first(turn, 1 + (factor - 1) * turn.index / 480))


def test_a_run_as_it_should_be_passes_every_gate() -> None:
    verdicts = report(GOOD, "--exact", next_tokens=([1, 2], [1, 2])).verdicts()
    assert [(said.gate, said.outcome) for said in verdicts] == [(name, PASSED) for name in GATES]
    assert {said.gate: said.formula for said in verdicts} == {name: formula for name, (_, formula) in GATES.items()}
    assert (exit_status(verdicts), tuple(GATES)) == (0, settings.GATES)


def test_what_is_skipped_is_not_judged_and_says_so() -> None:
    verdicts = report([], "--skip-gate", "kv_bounded").verdicts()
    assert [said.outcome for said in verdicts] == [Outcome.SKIPPED, UNDECIDED, UNDECIDED, UNDECIDED, Outcome.SKIPPED]
    assert (verdicts[0].reason, verdicts[0].figures) == ("not asked for", {})


def test_several_sessions_are_judged_together() -> None:
    turns = [turn for session in range(3) for turn in run(150, session=session)]
    said = verdict("prefill_bounded", turns)
    assert said.outcome is PASSED
    assert said.figures["num_head_turns"] == 3 * 14  # 150 turns less 5 of warm-up; full after 2 of them
    assert verdict("kv_bounded", turns).outcome is PASSED


LARGE = changed(run(480, worker_rss_bytes=100 * RSS), lambda _: rss(102 * RSS), start=240)
OTHER = run(480, session=1, worker="two", worker_rss_bytes=3 * RSS)
DRAW = random.Random(0)
LONG_MESSAGES = changed(
    GOOD,
    lambda turn: {"num_new_tokens": 2 * NEW, "history_length": turn.history_length + 1000, **first(turn, 2.0)},
    start=240,
)
SILENT = run(480, time_to_first_token_seconds=None)
JUDGED: dict[str, dict[str, tuple[list[Turn], Outcome, str]]] = {
    "kv_bounded": {
        "zero": (run(480, kv_live_bytes=0), FAILED, "session 0 turn 1, history 38: 0 bytes, expected 38,000"),
        "zero of nothing": (
            run(480, kv_live_bytes=0, history_length=0),
            FAILED,
            "session 0 turn 1, history 0: 0 bytes, expected 0",
        ),
        "creeps": (
            changed(GOOD, lambda turn: kv((turn.kv_live_bytes or 0) + turn.index // 470)),
            FAILED,
            "session 0 turn 470,",
        ),
        "a spike": (but(GOOD, 200, kv_live_bytes=(CAPACITY + 1) * BYTES_PER_TOKEN), FAILED, "session 0 turn 201,"),
        "too few": (but(GOOD, 479, kv_live_bytes=(CAPACITY - 1) * BYTES_PER_TOKEN), FAILED, "session 0 turn 480,"),
        "a failure": (
            but(GOOD, 100, error="gone", kv_live_bytes=None),
            PASSED,
            "equal in all 479 turns, 478 of them full",
        ),
        "never full": (run(1), UNDECIDED, "no history outgrew sinks and window"),
        "no turn": ([], UNDECIDED, "no turn succeeded"),
        "all failed": (run(480, error="gone"), UNDECIDED, "no turn succeeded"),
    },
    "rss_bounded": {
        "a leak": (
            changed(GOOD, lambda turn: rss(RSS + turn.index * 50_000)),
            FAILED,
            "worker one: 301.4 MiB, +20.4 in",
        ),
        "within the allowance": (changed(GOOD, lambda turn: rss(RSS + turn.index * 30_000)), PASSED, "worker one: "),
        "a share of a large model": (LARGE, PASSED, "worker one: 30,000.0 MiB, +600.0 in the tail"),
        "beyond it": (changed(LARGE, lambda _: rss(102 * RSS + MIB), start=240), FAILED, "worker one: "),
        "a spike": (but(GOOD, 240, **rss(RSS + 2 * RSS_ALLOWANCE_BYTES + 1)), FAILED, "worker one: 300.0 MiB, +0.0 in"),
        "the warm-up may grow": (
            changed(run(480, worker_rss_bytes=RSS // 2), lambda _: rss(RSS), start=5),
            PASSED,
            "worker one: 300.0 MiB",
        ),
        "each worker by itself": (
            GOOD + OTHER,
            PASSED,
            "worker one: 300.0 MiB, +0.0 in the tail, +0.0 at most; worker two: 900.0 MiB",
        ),
        "one of two leaks": (GOOD + changed(OTHER, lambda turn: rss(RSS + turn.index * MIB)), FAILED, "worker two"),
        "unknown": (
            but(GOOD, 479, worker_rss_bytes=None),
            UNDECIDED,
            "worker one: its memory is not known in every turn",
        ),
        "told as zero": (
            but(GOOD, 479, worker_rss_bytes=0, worker=""),
            UNDECIDED,
            "worker (unknown): its memory is not known",
        ),
        "too few": (run(104), UNDECIDED, "99 turns after warm-up and plateau, 100 are needed"),
        "enough": (run(105), PASSED, "worker one: "),
        "none": (run(5), UNDECIDED, "no turn after the warm-up succeeded"),
    },
    "prefill_bounded": {
        "slower": (slower(1.2), FAILED, "tail / head = 1.1"),
        "slower within the bound": (slower(1.03), PASSED, "tail / head = 1.0"),
        "faster": (slower(0.5), PASSED, "tail / head = 0.5"),
        "linear in the history": (
            changed(GOOD, lambda turn: {"time_to_first_token_seconds": 0.001 * turn.history_length}),
            FAILED,
            "tail",
        ),
        "spikes in the tail": (
            changed(GOOD, lambda turn: first(turn, 12.0 if turn.index % 8 == 0 else 1.0), start=400),
            FAILED,
            "tail",
        ),
        "one spike": (but(GOOD, 469, time_to_first_token_seconds=3.0), UNDECIDED, "tail / head"),
        "noise": (
            changed(GOOD, lambda _: {"time_to_first_token_seconds": DRAW.expovariate(4.0)}),
            UNDECIDED,
            "tail / head",
        ),
        "longer messages": (LONG_MESSAGES, PASSED, "tail / head"),
        "too few": (run(104), UNDECIDED, "99 turns after warm-up and plateau, 100 are needed"),
        "enough": (run(105), PASSED, "tail / head"),
        "none": ([], UNDECIDED, "0 turns after"),
        "no first token": (SILENT, UNDECIDED, "hardly a turn of head or tail had a first token"),
        "one first token": (but(SILENT, 10, time_to_first_token_seconds=1.0), UNDECIDED, "hardly"),
    },
}


@pytest.mark.parametrize(("gate", "case"), [(gate, case) for gate, cases in JUDGED.items() for case in cases])
def test_what_a_gate_says(gate: str, case: str) -> None:
    turns, outcome, reason = JUDGED[gate][case]
    said = verdict(gate, turns)
    assert said.outcome is outcome
    assert said.reason.startswith(reason)
    if "memory is not known" in reason:
        assert verdict(gate, turns, why_not_rss="no operator").reason.endswith("; no operator")
    if outcome is UNDECIDED and "ratio" in said.figures:
        assert f"wider than +-{gates.MAX_HALF_WIDTH:.0%}: " in said.reason


def test_without_config_bytes_cannot_be_judged() -> None:
    said = verdict("kv_bounded", GOOD, facts=replace(FACTS, kv_bytes_per_token=None, why_not="no config.json"))
    assert (said.outcome, said.reason) == (UNDECIDED, "no config.json")


def test_head_and_tail_begin_after_plateau_and_warm_up() -> None:
    """While the lane fills a turn has less to do; were that the head, every run would fail."""
    turns = changed(run(480, capacity=100 * 38), lambda turn: first(turn, min(1, turn.index / 100)))
    said = verdict("prefill_bounded", turns, "--warm-up-turns", "0")
    assert (said.outcome, said.figures["num_head_turns"]) == (PASSED, 38)  # of 380 that began with a full lane
    slow_start = changed(run(480, noise=0.0), lambda turn: first(turn, 36.0 if turn.index <= 50 else 1.0))
    assert verdict("prefill_bounded", slow_start, "--warm-up-turns", "50").figures["ratio"] == 1.0
    ratio = verdict("prefill_bounded", slow_start).figures["ratio"]
    assert isinstance(ratio, float)
    assert ratio < 0.2


def test_one_error_fails_and_no_turn_is_no_success() -> None:
    said = verdict("errors", but(GOOD, 300, error="WorkerLost: gone"))
    assert (said.outcome, said.figures) == (FAILED, {"num_errors": 1})
    assert said.reason == "1 of 480 turns; the first is session 0 turn 301: WorkerLost: gone"
    assert verdict("errors", []).outcome is UNDECIDED


@pytest.mark.parametrize(
    ("next_tokens", "outcome", "reason"),
    [
        (([5, 6, 7], [5, 6, 7]), PASSED, "the same 3 tokens, 3 of them distinct"),
        (([5, 6, 7], [5, 6, 8]), FAILED, "they differ from token 3 on, of 3 and 3"),
        (([5, 6, 7], [5, 6]), FAILED, "they differ from token 3 on, of 3 and 2"),
        (([5, 6, 7], [5, 6, 7, 8]), FAILED, "they differ from token 4 on, of 3 and 4"),
        (([5, 6, 7], []), FAILED, "they differ from token 1 on, of 3 and 0"),
        (([], []), UNDECIDED, "no token was generated"),
        (None, UNDECIDED, "the transcript was not replayed"),
    ],
)
def test_the_next_tokens_are_compared(
    next_tokens: tuple[list[int], list[int]] | None, outcome: Outcome, reason: str
) -> None:
    said = verdict("exact", run(10), "--exact", next_tokens=next_tokens)
    assert (said.outcome, said.reason) == (outcome, reason)
    if next_tokens is None:
        assert verdict("exact", run(10), "--exact", why_not_exact="NoCapacity: full").reason == "NoCapacity: full"
