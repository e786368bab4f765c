"""The turns of `kakeya bench load`: what is sent, when, and what is measured."""

import math
from itertools import islice, pairwise
from pathlib import Path

import pytest

from kakeya_bench.load.player import ERROR_PAUSE_SECONDS, think_times
from tests.unit.bench.conversation.playing import OwnClock, Play, appended, messages
from tests.unit.bench.load.sweeping import TICK_SECONDS
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, passes


def times(num: int, mean_seconds: float = 2.0, *, seed: int = 0, conversation: int = 0) -> list[float]:
    return list(islice(think_times(mean_seconds, seed=seed, conversation=conversation), num))


def test_think_times_are_the_same_for_the_same_seed_and_conversation() -> None:
    assert times(50) == times(50)
    assert len({tuple(times(5)), tuple(times(5, seed=1)), tuple(times(5, conversation=1))}) == 3
    assert times(3, 0.0) == [0.0, 0.0, 0.0]


def test_think_times_are_exponential() -> None:
    drawn = times(20_000)
    assert min(drawn) > 0
    assert abs(sum(drawn) / len(drawn) - 2.0) < 0.06
    for seconds in (2.0 * math.log(2), 4.0):
        assert abs(sum(value > seconds for value in drawn) / len(drawn) - math.exp(-seconds / 2.0)) < 0.01


def test_each_session_says_its_own_and_the_same_at_each_level(sweep: Play, runtime: ScriptedRuntime) -> None:
    sweep("--sessions", "1,2", "--seed", "5")
    for name, conversation in [("counter.0", 0), ("counter.1", 0), ("counter.2", 1)]:
        sent = appended(runtime, name)
        assert sent
        assert sent == messages(len(sent), conversation, seed=5) != messages(len(sent), conversation)


def test_users_think_as_long_as_was_drawn(sweep: Play, clock: OwnClock) -> None:
    clock.tick_seconds = 0.0
    turns = sweep("--sessions", "1", "--duration-s", "100", "--think-time-s", "5", "--seed", "3").turns
    starts = [turn["started_seconds"] for turn in turns]
    thoughts = times(len(starts), 5.0, seed=3)
    assert [after - before for before, after in pairwise(starts)] == pytest.approx(thoughts[:-1])
    assert starts[-1] < 100 <= starts[-1] + thoughts[-1], "no turn begins later"


def test_the_first_turns_are_spread_over_a_thought(sweep: Play, clock: OwnClock) -> None:
    clock.tick_seconds = 0.0
    turns = sweep("--sessions", "4", "--think-time-s", "12", "--duration-s", "7.5").turns
    first = {turn["session"]: turn["started_seconds"] for turn in turns if turn["index"] == 1}
    assert first == {0: 0.0, 1: 3.0, 2: 6.0}, "that of the fourth is due when it is over"


def test_what_a_turn_is_recorded_as(sweep: Play, runtime: ScriptedRuntime, clock: OwnClock) -> None:
    runtime.before["AppendTokens"] += [clock.takes(3.0)]
    first, second, *_ = sweep("--sessions", "1").turns
    assert first.pop("time_to_first_token_seconds") == pytest.approx(3.0 + TICK_SECONDS), "the append and the first"
    assert first.pop("time_per_output_token_seconds") == pytest.approx(TICK_SECONDS)
    assert 3.0 + 4 * TICK_SECONDS < first.pop("wall_seconds") <= second["started_seconds"] - first["started_seconds"]
    assert 0 <= first.pop("started_seconds") < second["started_seconds"]
    assert first == {
        "session": 0,
        "index": 1,
        "is_warm_up": False,
        "num_new_tokens": 3,
        "num_tokens_out": 4,
        "history_length": 7,
        "kv_live_bytes": 7 * 1024,
        "error": None,
    }
    assert (second["index"], second["history_length"]) == (2, 14)


@pytest.mark.parametrize("limit", ["--ttft-limit-s", "--tpot-limit-s"])
def test_turns_that_miss_a_limit(sweep: Play, limit: str) -> None:
    outcome = sweep("--sessions", "1,3", limit, "0.05", "--duration-s", "40", "--judge-goodput")
    for level in outcome.levels:
        assert (level["num_errors"], level["num_within_limits"], level["goodput_turns_per_s"]) == (0, 0, 0.0)
        assert level["turns_per_s"] == level["num_turns"] / level["measured_s"] > 0
    outcomes = [outcome.gate(gate)["outcome"] for gate in ("errors", "goodput")]
    assert (outcome.status, outcomes) == (1, ["passed", "failed"])
    assert outcome.document["largest_num_sessions_within_limits"] is None


def test_a_turn_that_runs_at_the_end_comes_to_its_own(sweep: Play, runtime: ScriptedRuntime, clock: OwnClock) -> None:
    runtime.before["AppendTokens"] += [passes, clock.takes(60.0)]
    (level,) = sweep("--sessions", "1").levels
    _, last = level["turns"]
    assert last["started_seconds"] < 10.0 < last["wall_seconds"]
    assert (level["num_turns"], last["num_tokens_out"]) == (2, 4)
    assert last["started_seconds"] + last["wall_seconds"] <= level["measured_s"] < 70.0
    assert level["goodput_turns_per_s"] == 1 / level["measured_s"]


def test_turns_of_the_warm_up_are_played_and_not_counted(sweep: Play) -> None:
    (level,) = sweep("--sessions", "2", "--warm-up-s", "4").levels
    assert all(turn["is_warm_up"] is (turn["started_seconds"] < 4.0) for turn in level["turns"])
    assert all(turn["started_seconds"] < 14.0 for turn in level["turns"])
    counted = [turn for turn in level["turns"] if not turn["is_warm_up"]]
    assert 0 < len(counted) == level["num_turns"] < len(level["turns"])
    end = max(turn["started_seconds"] + turn["wall_seconds"] for turn in level["turns"])
    assert max(10.0, end - 4.0) <= level["measured_s"] < end
    assert level["goodput_turns_per_s"] == len(counted) / level["measured_s"]


def test_where_everybody_thinks_all_the_time_nothing_can_be_judged(sweep: Play) -> None:
    outcome = sweep("--sessions", "1", "--warm-up-s", "1", "--think-time-s", "600")
    assert (len(outcome.turns), outcome.levels[0]["measured_s"]) == (1, 10.0)
    assert outcome.gate("errors")["reason"] == "1 session: no turn began after the warm-up"
    assert outcome.status == 2


def test_errors_count_and_the_next_turn_is_played(sweep: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["AppendTokens"] += [passes, fails("QUOTA_EXCEEDED")]
    runtime.before["Generate"] += [passes, passes, fails("INTERNAL")]
    outcome = sweep("--sessions", "1", "--duration-s", "30")
    errors = [turn["error"] for turn in outcome.turns]
    assert errors[:5] == [
        None,
        "QuotaExceeded: scripted QUOTA_EXCEEDED",
        None,
        "Internal: scripted INTERNAL",
        None,
    ]
    assert (outcome.levels[0]["num_errors"], outcome.levels[0]["num_within_limits"]) == (2, len(errors) - 2)
    unanswered, after = outcome.turns[1:3]
    assert (unanswered["num_new_tokens"], unanswered["num_tokens_out"], unanswered["kv_live_bytes"]) == (3, 0, None)
    ended = unanswered["started_seconds"] + unanswered["wall_seconds"]
    assert after["started_seconds"] - ended >= ERROR_PAUSE_SECONDS, "who fails does not try again at once"
    assert outcome.status == 1
    assert "1 session, session 0 turn 2: QuotaExceeded: scripted QUOTA_EXCEEDED" in outcome.gate("errors")["reason"]
    assert len(runtime.requests["CreateSession"]) == 1, "the session is there, and goes on"


def test_a_lost_session_is_replaced_by_one_with_another_conversation(sweep: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["AppendTokens"] += [passes, fails("WORKER_LOST")]
    assert [turn["history_length"] for turn in sweep("--sessions", "1").turns[:4]] == [7, 0, 7, 14]
    sent = appended(runtime, "counter.1")
    assert sent == messages(len(sent), 1), "of a user whose number nobody else has"


def test_a_session_that_is_replaced_too_late(sweep: Play, runtime: ScriptedRuntime, clock: OwnClock) -> None:
    runtime.before["AppendTokens"] += [fails("SESSION_NOT_FOUND")]
    runtime.before["CreateSession"] += [passes, clock.takes(60.0)]
    assert [turn["error"] is None for turn in sweep("--sessions", "1").turns] == [False]
    assert runtime.sessions.keys() == {"counter.0"}, "the lost one alone"


def test_a_session_that_cannot_be_replaced(sweep: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["AppendTokens"] += [fails("WORKER_LOST")]
    runtime.before["CreateSession"] += [passes, *[fails("NO_CAPACITY")] * 99]
    outcome = sweep("--sessions", "1")
    lost, *refused = outcome.turns
    assert lost["error"] == "WorkerLost: scripted WORKER_LOST"
    assert {(turn["error"], turn["num_new_tokens"]) for turn in refused} == {("NoCapacity: scripted NO_CAPACITY", 0)}
    assert outcome.levels[0]["kv"]["sessions_bytes"] == 0


def test_prompts_that_are_gone_when_a_session_is_replaced(
    sweep: Play, runtime: ScriptedRuntime, template_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("Hello!\n")

    def loses(context: object) -> None:
        file.unlink()
        fails("SESSION_NOT_FOUND")(context)  # type: ignore[arg-type]

    runtime.before["Generate"] += [loses]
    outcome = sweep("--sessions", "1", "--tokenizer", str(template_dir), "--prompts", str(file))
    assert outcome.status == 1
    assert outcome.turns[1]["error"] == f"NoPrompts: {file}: No such file or directory"
