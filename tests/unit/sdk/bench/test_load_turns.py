"""The turns of `kakeya bench load`: what is sent, when, and what is measured."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kakeya.bench import prompts
from kakeya.bench.load import page, player
from kakeya.bench.load.think_times import ThinkTimes
from kakeya.bench.prompts import RandomTokens
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.sdk.bench.playing import appended
from tests.unit.sdk.bench.sweeping import SHORT, Always, SlowTokens, Sweep, passes, sweeper, takes
from tests.unit.sdk.chatting import encode, sent
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import VOCAB_SIZE, ScriptedRuntime, ScriptedSession, fails


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at these reports, and a picture takes longer than a level."""
    monkeypatch.setattr(page, "files", lambda document: {})


@pytest.fixture
def sweep(runtime: ScriptedRuntime, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sweep:
    return sweeper(runtime, tmp_path / "report", capsys)


@pytest.fixture
def slow(admin: ScriptedAdmin) -> Iterator[SlowTokens]:
    runtime = SlowTokens(admin, 0.02)
    yield runtime
    runtime.stop()


def said(conversation: int, num_turns: int, seed: int = 0) -> list[list[int]]:
    """What the bench says in a conversation of `SHORT` turns."""
    tokens = RandomTokens(3, VOCAB_SIZE, seed=seed, conversation=conversation)
    return [tokens.next_turn(None) for _ in range(num_turns)]


def test_each_session_says_its_own_and_the_same_at_each_level(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    levels = sweep(*SHORT, "--sessions", "1,2").levels
    assert [level["num_opened"] for level in levels] == [1, 2]
    for name, conversation in [("counter.0", 0), ("counter.1", 0), ("counter.2", 1)]:
        sent = appended(runtime, name)
        assert len(sent) >= 2
        assert sent == said(conversation, len(sent))


def test_another_seed_says_something_else(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    sweep(*SHORT, "--sessions", "1", "--seed", "5")
    sent = appended(runtime, "counter.0")
    assert sent == said(0, len(sent), seed=5) != said(0, len(sent))


def test_users_think_as_long_as_was_drawn(sweep: Sweep) -> None:
    flags = ["--sessions", "2", "--duration-s", "0.6", "--think-time-s", "0.1", "--seed", "3"]
    turns = sweep(*SHORT, *flags).turns()
    for session in range(2):
        own = [turn for turn in turns if turn["session"] == session]
        thoughts = ThinkTimes(0.1, seed=3, conversation=session)
        assert len(own) >= 2
        for before, after in pairwise(own):
            pause_seconds = after["started_seconds"] - before["started_seconds"] - before["wall_seconds"]
            assert -0.001 < pause_seconds - thoughts.next_seconds() < 0.25


def test_the_first_turns_are_spread_over_a_thought(sweep: Sweep) -> None:
    turns = sweep(*SHORT, "--sessions", "4", "--think-time-s", "1.2", "--duration-s", "0.75").turns()
    first = {turn["session"]: turn["started_seconds"] for turn in turns if turn["index"] == 1}
    assert sorted(first) == [0, 1, 2], "that of the fourth is due when it is over"
    assert all(0 <= seconds - number * 0.3 < 0.25 for number, seconds in first.items())


def test_a_message_is_sent_once_and_closes_the_answer_where_the_model_did_not(
    sweep: Sweep,
    runtime: ScriptedRuntime,
    tokenizer: ChatTokenizer,
    template_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def says_nothing_the_second_time(session: ScriptedSession, request: Any, op_id: str, *rest: Any) -> Iterator[Any]:
        if len(runtime.requests["Generate"]) != 2:
            yield from tokens(session, request, op_id, *rest)
            return
        session.running.discard(op_id)
        done = pb.GenerateDone(history_length=len(session.history), stop_reason=pb.STOP_REASON_TRUNCATED)
        yield pb.GenerateResponse(done=done)

    tokens = runtime._tokens
    monkeypatch.setattr(runtime, "_tokens", says_nothing_the_second_time)
    (end,) = encode(tokenizer, "<|im_end|>")
    runtime.answers += [[65, end], [66, 67, 68, 69]]
    flags = ["--sessions", "1", "--think-time-s", "0", "--duration-s", "0.5"]
    turns = sweep(*SHORT[2:], *flags, "--tokenizer", str(template_dir)).turns()
    assert [turn["num_tokens_out"] for turn in turns[:3]] == [2, 0, 4]
    messages, texts = prompts.written(seed=0, conversation=0), sent(tokenizer, runtime)
    opened = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    assert texts[:4] == [
        opened.format(next(messages)),
        f"\n{opened}".format(next(messages)),
        f"<|im_end|>\n{opened}".format(next(messages)),
        f"<|im_end|>\n{opened}".format(next(messages)),
    ]
    assert list(runtime.requests["CreateSession"][0].eos_token_ids) == [end]


class TestSlowTokens:
    """A runtime that takes 20 ms for each token."""

    @pytest.fixture
    def sweep(self, slow: SlowTokens, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sweep:
        return sweeper(slow, tmp_path / "report", capsys)

    def test_what_a_turn_is_recorded_as(self, sweep: Sweep, slow: SlowTokens) -> None:
        slow.before["AppendTokens"] = Always([takes(0.1)])
        first, second, *_ = sweep(*SHORT, "--sessions", "1", "--duration-s", "0.8").turns()
        assert 0 <= first.pop("started_seconds") < second["started_seconds"]
        to_first, wall_seconds = first.pop("time_to_first_token_seconds"), first.pop("wall_seconds")
        assert 0.1 + 0.02 <= to_first <= wall_seconds - 3 * 0.02, "the append and the first token"
        each = first.pop("time_per_output_token_seconds")
        assert 0.02 <= each <= (wall_seconds - to_first) / 3, "of the three after the first"
        assert first == {
            "session": 0, "index": 1, "is_warm_up": False, "num_new_tokens": 3, "num_tokens_out": 4,
            "history_length": 7, "kv_live_bytes": 7 * 1024, "error": None,
        }  # fmt: skip
        assert (second["index"], second["history_length"]) == (2, 14)

    def test_it_misses_a_limit_for_each_token(self, sweep: Sweep) -> None:
        (level,) = sweep(*SHORT, "--sessions", "1", "--tpot-limit-s", "0.015").levels
        assert (level["num_errors"], level["num_within_limits"], level["goodput_turns_per_s"]) == (0, 0, 0.0)
        assert level["num_turns"] > 0
        assert level["turns_per_s"] > 0
        (level,) = sweep(*SHORT, "--sessions", "1", "--tpot-limit-s", "2").levels
        assert level["share_within_limits"] == 1.0

    def test_it_misses_a_limit_for_the_first_token(self, sweep: Sweep) -> None:
        outcome = sweep(*SHORT, "--sessions", "1", "--ttft-limit-s", "0.015")
        assert outcome.levels[0]["share_within_limits"] == 0.0
        assert outcome.document["largest_num_sessions_within_limits"] is None
        assert outcome.status == 0, "nobody asked for the gate"

    def test_the_gate_fails_where_it_is_asked_for(self, sweep: Sweep) -> None:
        flags = [*SHORT, "--sessions", "1,3", "--duration-s", "0.4", "--think-time-s", "0", "--judge-goodput"]
        outcome = sweep(*flags, "--tpot-limit-s", "0.015")
        assert outcome.status == 1
        assert outcome.gate("goodput")[0] == "failed"
        assert outcome.gate("goodput")[1].startswith("3 sessions: 0.0% of ")
        assert outcome.gate("errors")[0] == "passed"
        outcome = sweep(*flags, "--tpot-limit-s", "2")
        assert (outcome.status, outcome.gate("goodput")[0]) == (0, "passed")
        assert outcome.document["largest_num_sessions_within_limits"] == 3

    def test_a_turn_that_runs_at_the_end_comes_to_its_own(self, sweep: Sweep, slow: SlowTokens) -> None:
        slow.seconds = 0.08
        (level,) = sweep(*SHORT, "--sessions", "1", "--duration-s", "0.5", "--think-time-s", "0").levels
        *_, last = level["turns"]
        end = last["started_seconds"] + last["wall_seconds"]
        assert last["started_seconds"] < 0.5 < end
        assert last["num_tokens_out"] == 4
        assert level["num_turns"] == len(level["turns"])
        assert end <= level["measured_s"] < end + 0.2
        assert level["turns_per_s"] == level["num_turns"] / level["measured_s"]


def test_an_answer_of_one_token(sweep: Sweep) -> None:
    (level,) = sweep(*SHORT, "--sessions", "1", "--max-tokens", "1").levels
    assert level["time_per_output_token_s"] is None
    assert level["share_within_limits"] == 1.0


def test_an_answer_without_a_token_is_none_in_time(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    """As where a session refuses to forget and is full."""
    done = pb.GenerateDone(history_length=3, kv_live_bytes=3 * 1024, stop_reason=pb.STOP_REASON_TRUNCATED)
    runtime.unusual_responses = [pb.GenerateResponse(done=done)]
    (level,) = sweep(*SHORT, "--sessions", "1", "--think-time-s", "600").levels
    assert (level["num_turns"], level["num_errors"]) == (1, 0)
    assert (level["share_within_limits"], level["time_to_first_token_s"]) == (0.0, None)


def test_turns_of_the_warm_up_are_played_and_not_counted(sweep: Sweep) -> None:
    (level,) = sweep(*SHORT, "--sessions", "2", "--warm-up-s", "0.2").levels
    for turn in level["turns"]:
        assert turn["is_warm_up"] is (turn["started_seconds"] < 0.2)
        assert turn["started_seconds"] < 0.45
    counted = [turn for turn in level["turns"] if not turn["is_warm_up"]]
    assert 0 < len(counted) == level["num_turns"] < len(level["turns"])
    end = max(turn["started_seconds"] + turn["wall_seconds"] for turn in level["turns"])
    assert level["measured_s"] == pytest.approx(max(0.25, end - 0.2), abs=0.1)
    assert level["goodput_turns_per_s"] == len(counted) / level["measured_s"]


def test_where_everybody_thinks_all_the_time_nothing_can_be_judged(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    outcome = sweep(*SHORT, "--sessions", "1", "--warm-up-s", "0.05", "--think-time-s", "600")
    assert len(outcome.turns()) == 1
    assert outcome.levels[0]["measured_s"] == 0.25
    assert outcome.gate("errors") == ("undecided", "1 session: no turn began after the warm-up")
    assert outcome.status == 2


def test_errors_count_and_the_next_turn_is_played(
    sweep: Sweep, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "ERROR_PAUSE_SECONDS", 0.01)
    runtime.before["AppendTokens"] += [passes, fails("QUOTA_EXCEEDED")]
    runtime.before["Generate"] += [passes, passes, fails("INTERNAL")]
    outcome = sweep(*SHORT, "--sessions", "1", "--think-time-s", "0")
    (level,) = outcome.levels
    errors = [turn["error"] for turn in level["turns"]]
    assert errors[:5] == [
        None, "QuotaExceeded: scripted QUOTA_EXCEEDED", None, "Internal: scripted INTERNAL", None,
    ]  # fmt: skip
    assert (level["num_errors"], level["num_within_limits"]) == (2, len(errors) - 2)
    assert level["share_within_limits"] == (len(errors) - 2) / len(errors)
    unanswered = level["turns"][1]
    assert (unanswered["num_new_tokens"], unanswered["num_tokens_out"], unanswered["kv_live_bytes"]) == (3, 0, None)
    assert outcome.status == 1
    assert outcome.gate("errors")[0] == "failed"
    assert "1 session, session 0 turn 2: QuotaExceeded: scripted QUOTA_EXCEEDED" in outcome.gate("errors")[1]
    assert len(runtime.requests["CreateSession"]) == 1, "the session is there, and goes on"


def test_who_fails_does_not_try_again_at_once(sweep: Sweep, runtime: ScriptedRuntime) -> None:
    runtime.before["Generate"] = Always([fails("INTERNAL")])
    (level,) = sweep(*SHORT, "--sessions", "1", "--think-time-s", "0").levels
    assert (level["num_turns"], level["num_errors"]) == (1, 1)


@pytest.mark.parametrize("reason", ["SESSION_NOT_FOUND", "WORKER_LOST", "INVARIANT_VIOLATED", "SESSION_CLOSED"])
def test_a_lost_session_is_replaced_by_one_with_another_conversation(
    sweep: Sweep, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(player, "ERROR_PAUSE_SECONDS", 0.01)
    runtime.before["AppendTokens"] += [passes, fails(reason)]
    (level,) = sweep(*SHORT, "--sessions", "1", "--think-time-s", "0").levels
    assert level["turns"][1]["error"].endswith(f": scripted {reason}")
    assert [turn["history_length"] for turn in level["turns"][:4]] == [7, 0, 7, 14]
    sent = appended(runtime, "counter.1")
    assert sent == said(1, len(sent)), "of a user whose number nobody else has"
    assert level["kv"]["sessions_bytes"] == min(20, 7 * len(sent)) * 1024
    assert "counter.1" not in runtime.sessions


def test_a_session_that_is_replaced_too_late(
    sweep: Sweep, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "ERROR_PAUSE_SECONDS", 0.01)
    runtime.before["AppendTokens"] += [fails("SESSION_NOT_FOUND")]
    runtime.before["CreateSession"] += [passes, takes(0.5)]
    (level,) = sweep(*SHORT, "--sessions", "1").levels
    assert [turn["error"] is None for turn in level["turns"]] == [False]
    assert runtime.sessions.keys() == {"counter.0"}, "the lost one alone"


def test_a_session_that_cannot_be_replaced(
    sweep: Sweep, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "ERROR_PAUSE_SECONDS", 0.01)
    runtime.before["AppendTokens"] += [fails("WORKER_LOST")]
    runtime.before["CreateSession"] += [passes, *[fails("NO_CAPACITY")] * 99]
    (level,) = sweep(*SHORT, "--sessions", "1").levels
    lost, *refused = level["turns"]
    assert lost["error"] == "WorkerLost: scripted WORKER_LOST"
    assert {turn["error"] for turn in refused} == {"NoCapacity: scripted NO_CAPACITY"}
    assert {turn["num_new_tokens"] for turn in refused} == {0}
    assert level["kv"]["sessions_bytes"] == 0


def test_prompts_that_are_gone_when_a_session_is_replaced(
    sweep: Sweep, runtime: ScriptedRuntime, template_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "ERROR_PAUSE_SECONDS", 0.01)
    file = tmp_path / "prompts.txt"
    file.write_text("Hello!\n")

    def loses(context: object) -> None:
        file.unlink()
        fails("SESSION_NOT_FOUND")(context)  # type: ignore[arg-type]

    runtime.before["Generate"] += [loses]
    outcome = sweep(*SHORT[2:], "--sessions", "1", "--tokenizer", str(template_dir), "--prompts", str(file))
    assert outcome.status == 1
    assert outcome.turns()[1]["error"] == f"NoPrompts: {file}: No such file or directory"
