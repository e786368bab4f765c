"""The turns of `kakeya bench session`: what is sent, when, and what happens to one that fails."""

from itertools import accumulate, chain
from pathlib import Path

import pytest

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_bench.conversation import dialogue, prompts
from kakeya_bench.session import player
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.bench.conversation.playing import RSS_BYTES, SHORT, OwnClock, Play, appended, messages
from tests.unit.sdk.chatting import encode, sent
from tests.unit.sdk.scripted_runtime import (
    FINGERPRINT,
    SINK,
    WINDOW,
    Fault,
    ScriptedRuntime,
    fails,
    passes,
    stalls,
)


def test_a_turn_sends_only_what_is_new(play: Play, runtime: ScriptedRuntime) -> None:
    play(*SHORT, "--turns", "7")
    assert appended(runtime) == messages(7, conversation=0)
    assert [request.session.expected_history_length for request in runtime.requests["Turn"]] == [*range(0, 35, 5)]
    assert [request.expected_history_length for request in runtime.requests["Generate"]] == [*range(3, 38, 5)]
    assert {request.max_tokens for request in runtime.requests["Generate"]} == {2}


def test_a_message_is_sent_once(
    play: Play, runtime: ScriptedRuntime, tokenizer: ChatTokenizer, template_dir: Path
) -> None:
    """With what the answer lacked at its end, or without it where the model said it."""
    (end,) = encode(tokenizer, "<|im_end|>")
    runtime.answers += [[65, end], [66, 67]]
    outcome = play("--tokenizer", str(template_dir), "--turns", "3", "--max-tokens", "2")
    texts = prompts.messages(None, seed=0, conversation=0)
    opened = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    assert sent(tokenizer, runtime) == [
        opened.format(next(texts)),
        f"\n{opened}".format(next(texts)),
        f"<|im_end|>\n{opened}".format(next(texts)),
    ]
    assert list(runtime.requests["CreateSession"][0].eos_token_ids) == [end]
    lengths = [len(ids) + 2 for ids in appended(runtime)]
    assert [turn["history_length"] for turn in outcome.turns] == [*accumulate(lengths)]
    assert [turn["num_new_tokens"] for turn in outcome.turns] == [length - 2 for length in lengths]


def test_a_session_is_asked_for_as_the_flags_say(play: Play, runtime: ScriptedRuntime) -> None:
    play(*SHORT, "--turns", "1", "--sink", "2", "--window", "9", "--model", "counter")
    play(*SHORT, "--turns", "1")
    asked, plain = runtime.requests["CreateSession"]
    assert (asked.sink, asked.window, asked.model, asked.client_label) == (2, 9, "counter", "kakeya bench")
    assert (plain.HasField("sink"), plain.HasField("window")) == (False, False)
    assert runtime.sessions == {}


def test_several_sessions_say_different_things(play: Play, runtime: ScriptedRuntime) -> None:
    outcome = play(*SHORT, "--turns", "4", "--sessions", "3")
    for number in range(3):
        assert appended(runtime, f"counter.{number}") == messages(4, conversation=number)
        assert [turn["index"] for turn in outcome.turns if turn["session"] == number] == [1, 2, 3, 4]
    assert runtime.sessions == {}


def test_what_a_turn_is_recorded_as(play: Play, runtime: ScriptedRuntime, own_clock: OwnClock) -> None:
    runtime.before["Generate"] += [own_clock.takes(2.0)] * 6
    runtime.before["AppendTokens"] += [own_clock.takes(1.0)] * 6
    *_, last = play(*SHORT, "--turns", "6").turns
    assert last == {
        "session": 0,
        "index": 6,
        "started_seconds": 15.0,
        "wall_seconds": 3.0,
        "capacity": SINK + WINDOW,
        "num_new_tokens": 3,
        "num_tokens_out": 2,
        "history_length": 30,
        "time_to_first_token_seconds": 3.0,
        "prefill_seconds": 0.25,
        "decode_seconds": 0.5,
        "kv_live_bytes": 20 * 1024,
        "worker": "scripted",
        "worker_rss_bytes": RSS_BYTES,
        "num_evicted_tokens": 12,
        "error": None,
    }


def test_an_answer_without_a_token(play: Play, runtime: ScriptedRuntime) -> None:
    """As where a session refuses to forget and is full."""
    done = pb.GenerateDone(history_length=3, kv_live_bytes=3 * 1024, stop_reason=pb.STOP_REASON_TRUNCATED)
    runtime.unusual_responses = [pb.GenerateResponse(done=done)]
    outcome = play(*SHORT, "--turns", "1")
    (turn,) = outcome.turns
    assert (turn["num_tokens_out"], turn["time_to_first_token_seconds"], turn["error"]) == (0, None, None)
    assert outcome.document["agg"]["time_to_first_token_s"] is None


def test_sessions_start_one_after_the_other(play: Play) -> None:
    for turn in play(*SHORT, "--sessions", "3", "--turns", "2", "--turn-spacing-s", "0.3").turns:
        assert turn["started_seconds"] >= (turn["index"] - 1) * 0.3 + turn["session"] * 0.1 - 0.001


@pytest.mark.parametrize(
    ("asked", "taken", "started"),
    [
        (["--turns", "8", "--turn-spacing-s", "6"], [2, 2, 20, *[2] * 5], [0, 6, 12, 32, 34, 36, 38, 42]),
        (["--duration-s", "30", "--turn-spacing-s", "10"], [8] * 3, [0, 10, 20]),
        (["--duration-s", "30"], [8] * 4, [0, 8, 16, 24]),
        (["--duration-s", "30", "--turns", "2"], [8] * 2, [0, 8]),
        (["--duration-s", "0", "--turns", "2"], [], []),
    ],
)
def test_when_turns_start(
    play: Play, runtime: ScriptedRuntime, own_clock: OwnClock, asked: list[str], taken: list[int], started: list[int]
) -> None:
    """From start to start, whatever a turn takes; a longer one delays the next few; none begins after the duration."""
    runtime.before["Generate"] += map(own_clock.takes, taken)
    assert [turn["started_seconds"] for turn in play(*SHORT, *asked).turns] == started


@pytest.mark.parametrize(
    ("method", "fault", "error", "num_tokens_left"),
    [
        ("AppendTokens", fails("INTERNAL"), "Internal: scripted INTERNAL", 0),
        ("AppendTokens", fails("NO_CAPACITY"), "NoCapacity: scripted NO_CAPACITY", 0),
        ("Generate", fails("INTERNAL"), "Internal: scripted INTERNAL", 3),
        ("Generate", stalls, "DeadlineExceeded: ", 3),
    ],
)
def test_a_turn_that_fails_is_recorded_and_the_next_one_played(
    play: Play, runtime: ScriptedRuntime, method: str, fault: Fault, error: str, num_tokens_left: int
) -> None:
    runtime.before[method] += [passes, passes, fault]
    outcome = play(*SHORT, "--turns", "5", "--timeout-s", "5" if fault is stalls else "60")
    assert (outcome.status, outcome.document["state"]) == (1, "complete")
    assert [turn["error"] is None for turn in outcome.turns] == [True, True, False, True, True]
    failed = outcome.turns[2]
    assert failed["error"].startswith(error)
    assert (failed["index"], failed["num_new_tokens"], failed["num_tokens_out"]) == (3, 3, 0)
    assert (failed["kv_live_bytes"], failed["time_to_first_token_seconds"], failed["worker"]) == (None, None, "")
    assert f"session 0 turn 3: {error}" in outcome.gate("errors")["reason"]
    assert len(runtime.requests["CreateSession"]) == 1, "the session is there, and goes on"
    assert appended(runtime) == messages(5, conversation=0)
    lengths = [turn["history_length"] for turn in outcome.turns]
    assert lengths == [5, 10, 0, 15 + num_tokens_left, 20 + num_tokens_left]
    assert runtime.sessions == {}


def test_a_lost_session_is_replaced_by_one_with_another_conversation(play: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["AppendTokens"] += [passes, passes, passes, passes, fails("WORKER_LOST")]
    outcome = play(*SHORT, "--turns", "5", "--sessions", "2")
    (failed,) = [turn for turn in outcome.turns if turn["error"]]
    assert (outcome.status, failed["error"]) == (1, "WorkerLost: scripted WORKER_LOST")
    lost, num_played = failed["session"], failed["index"]
    assert appended(runtime, f"counter.{lost}") == messages(num_played, conversation=lost)
    assert appended(runtime, f"counter.{1 - lost}") == messages(5, conversation=1 - lost)
    assert appended(runtime, "counter.2") == messages(5 - num_played, conversation=lost + 2)
    lengths = [turn["history_length"] for turn in outcome.turns if turn["session"] == lost]
    assert lengths == [*range(5, 5 * num_played, 5), 0, *range(5, 5 * (5 - num_played) + 1, 5)]
    assert "counter.2" not in runtime.sessions


def test_a_session_that_cannot_be_replaced_at_once(play: Play, runtime: ScriptedRuntime, own_clock: OwnClock) -> None:
    runtime.before["Generate"] += [fails("SESSION_NOT_FOUND")]
    runtime.before["CreateSession"] += [passes, *[fails("NO_WORKER")] * 5, own_clock.takes(5.0)]
    outcome = play(*SHORT, "--turns", "4")
    assert [turn["error"] for turn in outcome.turns] == [
        "SessionNotFound: scripted SESSION_NOT_FOUND",
        "NoWorker: scripted NO_WORKER",
        None,
        None,
    ]
    assert outcome.turns[1]["num_new_tokens"] == 0
    assert outcome.turns[2]["wall_seconds"] == 0, "another session's opening is no part of the turn"


def test_ten_failures_in_a_row_are_enough(play: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["Generate"] += [passes, *[fails("INTERNAL")] * 9, passes, *[fails("INTERNAL")] * 10]
    outcome = play(*SHORT, "--turns", "40")
    assert (outcome.status, outcome.document["state"]) == (1, "given_up")
    assert len(outcome.turns) == 21, "nine, one that succeeds, ten"
    assert player.MAX_ERRORS_IN_A_ROW == 10
    assert runtime.sessions == {}


def test_after_a_failure_and_no_other_turn_it_waits_a_little(
    play: Play, runtime: ScriptedRuntime, own_clock: OwnClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "ERROR_PAUSE_SECONDS", 1.5)
    runtime.before["Generate"] += [fails("INTERNAL")]
    assert [turn["started_seconds"] for turn in play(*SHORT, "--turns", "3").turns] == [0.0, 1.5, 1.5]


def test_the_transcript_in_one_append_gives_what_the_session_gives_next(play: Play, runtime: ScriptedRuntime) -> None:
    held: list[str] = []
    runtime.before["CreateSession"] += [passes, lambda context: held.extend(runtime.sessions)]
    outcome = play(*SHORT, "--turns", "4", "--exact", "--sink", "2")
    assert held == [], "one lane is enough"
    assert outcome.gate("exact")["outcome"] == "passed"
    assert outcome.gate("exact")["reason"] == "the same 32 tokens, 32 of them distinct"
    asked = runtime.requests["CreateSession"][1]
    assert (asked.model, asked.sink, asked.window, asked.fingerprint) == ("counter", SINK, WINDOW, FINGERPRINT)
    turns = [[*ids, ids[-1] + 1, ids[-1] + 2] for ids in messages(4, conversation=0)]
    assert appended(runtime, "counter.1") == [[*chain(*turns)]]
    assert [request.max_tokens for request in runtime.requests["Generate"]] == [2, 2, 2, 2, 32, 32]
    assert len(outcome.turns) == 4, "what is replayed is no turn"
    assert runtime.sessions == {}


def test_it_gives_something_else(play: Play, runtime: ScriptedRuntime) -> None:
    replays: Fault = lambda context: runtime.answers.append([7, 7])  # noqa: E731
    runtime.before["Generate"] += [*[passes] * 5, replays]
    outcome = play(*SHORT, "--turns", "4", "--exact")
    assert (outcome.status, outcome.gate("exact")["outcome"]) == (1, "failed")
    assert "from token 1 on" in outcome.gate("exact")["reason"]


def test_a_long_transcript_goes_in_parts(play: Play, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogue, "LONGEST_APPEND", 8)
    outcome = play(*SHORT, "--turns", "4", "--exact")
    assert [len(ids) for ids in appended(runtime, "counter.1")] == [8, 8, 4]
    assert outcome.gate("exact")["outcome"] == "passed"


@pytest.mark.parametrize(
    ("method", "faults", "reason"),
    [
        ("CreateSession", [passes, fails("NO_CAPACITY")], "NoCapacity: scripted NO_CAPACITY"),
        ("Generate", [passes, fails("INTERNAL")], "a turn failed, or none was played: the transcript is not known"),
    ],
)
def test_it_cannot_be_replayed(
    play: Play, runtime: ScriptedRuntime, method: str, faults: list[Fault], reason: str
) -> None:
    runtime.before[method] += faults
    outcome = play(*SHORT, "--turns", "4", "--exact")
    assert (outcome.gate("exact")["outcome"], outcome.gate("exact")["reason"]) == ("undecided", reason)
    assert outcome.document["state"] == "complete"
    assert runtime.sessions == {}
