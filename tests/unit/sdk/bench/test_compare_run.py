"""Runs of the comparison: a scripted runtime on the one side, scripted servers of completions on the other."""

import os
import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from kakeya.bench import report_file, transcript
from kakeya.bench.compare import rounds
from tests.unit.sdk.bench.comparing import compare, figures_of, of_player
from tests.unit.sdk.bench.playing import RSS_BYTES, appended
from tests.unit.sdk.bench.scripted_rival import Exchange, ScriptedRival, refuses, says_ids, says_texts, scripted_rival
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import (
    BYTES_PER_TOKEN,
    SINK,
    VOCAB_SIZE,
    WINDOW,
    ScriptedRuntime,
    fails,
    passes,
    stalls,
)


@pytest.fixture
def rival() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


@pytest.fixture
def other() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


def new_tokens(runtime: ScriptedRuntime) -> list[list[int]]:
    """Of each turn, as the first session was sent them."""
    return appended(runtime, "counter.0")


def test_everybody_gets_the_same_tokens(
    runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival, tmp_path: Path
) -> None:
    outcome = compare(
        runtime, tmp_path, "--turns", "6", f"--rival=a={rival.url}", f"--rival=b={other.url},every=mark", "--marks=2,5"
    )
    said = new_tokens(runtime)
    assert [len(ids) for ids in said] == [3] * 6
    assert len({tuple(ids) for ids in said}) == 6, "each turn says something else"
    for turn, ids in enumerate(said, 1):
        assert rival.prompts[turn - 1][-3:] == ids
        assert len(rival.prompts[turn - 1]) == 5 * (turn - 1) + 3
    assert [len(prompt) for prompt in other.prompts] == [8, 23]
    assert [prompt[-3:] for prompt in other.prompts] == [said[1], said[4]]
    assert {body["max_tokens"] for body in rival.bodies} == {2}
    assert outcome.document["state"] == "complete"
    for player, indices in (("kakeya", range(1, 7)), ("a", range(1, 7)), ("b", (2, 5))):
        turns = of_player(outcome, player)
        assert [turn["index"] for turn in turns] == list(indices)
        assert [turn["history_length"] for turn in turns] == [5 * index for index in indices]
        assert [turn["num_tokens_out"] for turn in turns] == [2] * len(turns)
    assert [turn["num_sent_tokens"] for turn in of_player(outcome, "kakeya")] == [3] * 6
    assert [turn["num_sent_tokens"] for turn in of_player(outcome, "a")] == [3, 8, 13, 18, 23, 28]


def test_the_same_seed_says_the_same(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    for seed in ("1", "1", "2"):
        compare(runtime, tmp_path, "--turns", "3", "--seed", seed)
    first, again, another = (appended(runtime, f"counter.{number}") for number in range(3))
    assert first == again != another


def test_each_has_its_own_answers_in_its_history(
    runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival, tmp_path: Path
) -> None:
    runtime.answers += [[700, 701], [702, 703], [704, 705]]
    compare(
        runtime, tmp_path, "--turns", "3", f"--rival=a={rival.url}", f"--rival=b={other.url},every=mark", "--marks=3"
    )
    one, two, three = new_tokens(runtime)
    counted = [[ids[-1] + 1, ids[-1] + 2] for ids in (one, two)]
    assert rival.prompts[2] == [*one, *counted[0], *two, *counted[1], *three], "its own"
    assert other.prompts == [[*one, 700, 701, *two, 702, 703, *three]], "the runtime's"


def test_the_order_rotates(
    runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival, tmp_path: Path
) -> None:
    outcome = compare(
        runtime, tmp_path, "--turns", "6", f"--rival=a={rival.url}", f"--rival=b={other.url},every=mark", "--marks=3,6"
    )
    rounds = [[turn["player"] for turn in outcome.turns if turn["index"] == index] for index in range(1, 7)]
    assert rounds == [
        ["kakeya", "a"],
        ["a", "kakeya"],
        ["b", "kakeya", "a"],
        ["a", "kakeya"],
        ["kakeya", "a"],
        ["b", "kakeya", "a"],
    ]
    assert [turn["place"] for turn in outcome.turns] == [0, 1, 0, 1, 0, 1, 2, 0, 1, 0, 1, 0, 1, 2]
    started = [turn["started_seconds"] for turn in outcome.turns]
    ended = [turn["started_seconds"] + turn["total_seconds"] for turn in outcome.turns]
    assert all(end <= start for end, start in zip(ended, started[1:], strict=False)), "one at a time"


def test_a_context_is_never_exceeded(runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path) -> None:
    outcome = compare(runtime, tmp_path, "--turns", "20", f"--rival=a={rival.url},context=24,keep=2,drop=8")
    said = new_tokens(runtime)
    assert max(len(prompt) for prompt in rival.prompts) + 2 <= 24
    assert all(prompt[:2] == said[0][:2] for prompt in rival.prompts)
    assert [prompt[-3:] for prompt in rival.prompts] == said
    turns = of_player(outcome, "a")
    dropped = [turn["num_dropped_tokens"] for turn in turns]
    assert set(dropped) == {0, 8}
    assert [turn["num_sent_tokens"] for turn in turns] == [
        5 * turn["index"] - 2 - sum(dropped[: turn["index"]]) for turn in turns
    ]
    assert [turn["history_length"] for turn in turns] == [5 * turn["index"] for turn in turns], "the whole of it"
    assert figures_of(outcome, "a")["num_dropping_turns"] == sum(map(bool, dropped)) > 5


def test_answers_without_ids_are_stood_in_for(runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path) -> None:
    rival.usual = says_texts
    outcome = compare(runtime, tmp_path, "--turns", "3", f"--rival=a={rival.url}")
    assert [len(prompt) for prompt in rival.prompts] == [3, 8, 13]
    assert rival.prompts[2][:8] == rival.prompts[1]
    assert [turn["knows_answer"] for turn in of_player(outcome, "a")] == [False] * 3
    assert [turn["num_tokens_out"] for turn in of_player(outcome, "a")] == [None] * 3
    assert figures_of(outcome, "a")["num_unknown_answers"] == 3
    assert figures_of(outcome, "kakeya")["num_unknown_answers"] == 0


def test_memory_and_kv(
    runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival, config: Path, tmp_path: Path
) -> None:
    outcome = compare(
        runtime, tmp_path, "--turns", "6", "--config", str(config),
        f"--rival=a={rival.url},context=20,keep=2,drop=8", f"--rival=b={other.url},kv=10,pid={os.getppid()}",
    )  # fmt: skip
    live = [turn["kv_live_bytes"] for turn in of_player(outcome, "kakeya")]
    assert live == [min(5 * index, SINK + WINDOW) * BYTES_PER_TOKEN for index in range(1, 7)]
    turns = of_player(outcome, "a")
    assert [turn["kv_computed_bytes"] for turn in turns] == [512 * (turn["num_sent_tokens"] + 2) for turn in turns]
    assert max(turn["kv_computed_bytes"] for turn in turns) <= 512 * 20
    assert [turn["kv_computed_bytes"] for turn in of_player(outcome, "b")] == [512 * 5] + [512 * 10] * 5
    assert {turn["kv_live_bytes"] for turn in turns} == {None}
    assert {turn["kv_computed_bytes"] for turn in of_player(outcome, "kakeya")} == {None}
    assert {turn["rss_bytes"] for turn in of_player(outcome, "kakeya")} == {RSS_BYTES}
    assert all(turn["rss_bytes"] > 1 << 20 for turn in turns), "this process listens"
    assert figures_of(outcome, "kakeya")["rss_bytes"] == {"start": RSS_BYTES, "end": RSS_BYTES, "max": RSS_BYTES}
    assert figures_of(outcome, "a")["rss_bytes"]["start"] > 1 << 20
    assert outcome.document["rival_kv"] == {"dtype": "float16", "bytes_per_token": 512, "why_not": ""}
    assert outcome.document["model"]["kv_bytes_per_token"] == BYTES_PER_TOKEN


def test_what_is_not_known(
    runtime: ScriptedRuntime, admin: ScriptedAdmin, rival: ScriptedRival, tmp_path: Path
) -> None:
    admin.workers.clear()
    outcome = compare(runtime, tmp_path, "--turns", "2", f"--rival=a={rival.url.replace('127.0.0.1', 'localhost')}")
    assert [turn["rss_bytes"] for turn in of_player(outcome, "kakeya")] == [None] * 2
    assert figures_of(outcome, "kakeya")["rss_bytes"] is None
    assert [turn["kv_computed_bytes"] for turn in of_player(outcome, "a")] == [None] * 2
    assert outcome.document["rival_kv"]["why_not"].startswith("the config.json of 'counter' is not known")


def test_everybody_warms_up_with_something_else(runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path) -> None:
    compare(runtime, tmp_path, "--turns", "2", "--warm-up-turns", "2", f"--rival=a={rival.url}")
    said = new_tokens(runtime)
    warm_up = [ids for session in ("counter.1", "counter.2") for ids in appended(runtime, session)]
    assert len(said) == len(warm_up) == 2
    assert not {tuple(ids) for ids in said} & {tuple(ids) for ids in warm_up}
    assert rival.prompts[:2] == warm_up
    assert rival.prompts[2] == said[0]
    assert [request.session_id for request in runtime.requests["CloseSession"]] == [
        "counter.1",
        "counter.2",
        "counter.0",
    ]


def test_a_rival_that_refuses_to_warm_up_may_play(
    runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path
) -> None:
    rival.answering.append(refuses(503, b"loading"))
    outcome = compare(runtime, tmp_path, "--turns", "2", "--warm-up-turns", "1", f"--rival=a={rival.url}")
    assert [turn["error"] for turn in of_player(outcome, "a")] == [None, None]


def test_a_rival_that_dies_is_left_out(
    runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival, tmp_path: Path
) -> None:
    rival.answering += [says_texts, refuses(400, b'{"error": {"message": "no"}}')]
    rival.usual = Exchange.break_off
    rival.answering += [says_texts]
    outcome = compare(
        runtime, tmp_path, "--turns", "8", f"--rival=a={rival.url}", f"--rival=b={other.url}", "--at-least", "a=1"
    )
    assert [turn["index"] for turn in of_player(outcome, "a")] == [1, 2, 3, 4, 5, 6]
    gone = "RemoteDisconnected: Remote end closed connection without response"
    assert [turn["error"] for turn in of_player(outcome, "a")] == [None, "HTTP 400: no", None, gone, gone, gone]
    assert [len(prompt) for prompt in rival.prompts] == [3, 8, 13, 18, 23, 28], "a turn that failed is in the history"
    assert figures_of(outcome, "a")["left_out_after_turn"] == 6
    assert figures_of(outcome, "a")["first_error"] == "turn 2: HTTP 400: no"
    assert len(of_player(outcome, "b")) == len(of_player(outcome, "kakeya")) == 8, "the others go on"
    assert (outcome.document["state"], outcome.status) == ("complete", 2)
    assert outcome.document["claims"]["a"]["outcome"] == "undecided"


def test_an_answer_of_another_length_is_none(runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path) -> None:
    def stops(exchange: Exchange) -> None:
        exchange.body["max_tokens"] = 1
        rival.usual(exchange)

    rival.answering.append(stops)
    outcome = compare(runtime, tmp_path, "--turns", "2", f"--rival=a={rival.url}")
    first, second = of_player(outcome, "a")
    assert first["error"].startswith("its answer has a length of 1, not 2: ")
    assert (first["total_seconds"], first["time_to_first_token_seconds"]) == (None, None)
    assert second["error"] is None
    assert [len(prompt) for prompt in rival.prompts] == [3, 8]


def test_the_runtime_goes_on_in_another_session(
    runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript, "LONGEST_APPEND", 4)
    runtime.before["Generate"] += [passes, fails("SESSION_NOT_FOUND"), passes]
    outcome = compare(runtime, tmp_path, "--turns", "3", f"--rival=a={rival.url},every=mark", "--marks=3")
    errors = [turn["error"] for turn in of_player(outcome, "kakeya")]
    assert (errors[0], errors[2]) == (None, None)
    assert errors[1].startswith("SessionNotFound: ")
    history = rival.prompts[0]
    again = appended(runtime, "counter.1")
    assert [token for part in again for token in part] == history, "all of it, with what stands in for the lost answer"
    assert [len(part) for part in again] == [4, 4, 2, 3], "what was before is not part of the turn"
    turn = of_player(outcome, "kakeya")[2]
    assert (turn["num_sent_tokens"], turn["history_length"]) == (3, 15)
    assert outcome.document["state"] == "complete"
    assert runtime.sessions.keys() == set()


def test_an_answer_that_is_lost_is_not_the_one_before(
    runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival, tmp_path: Path
) -> None:
    rival.answering += [says_ids, refuses(500, b"no")]
    runtime.before["Generate"] += [passes, fails("SESSION_NOT_FOUND")]
    compare(
        runtime, tmp_path, "--turns", "3", f"--rival=a={rival.url}", f"--rival=b={other.url},every=mark", "--marks=3"
    )
    for prompt in (rival.prompts[2], other.prompts[0]):
        assert prompt[3:5] == [(prompt[2] + 1) % VOCAB_SIZE, (prompt[2] + 2) % VOCAB_SIZE]
        assert prompt[8:10] != prompt[3:5]
    assert rival.prompts[2][8:10] == other.prompts[0][8:10], "the same stands in for both"


def test_a_runtime_that_fails_again_and_again_ends_the_run(
    runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path
) -> None:
    runtime.before["Generate"] += [passes, *[fails("SESSION_NOT_FOUND")] * 3]
    outcome = compare(runtime, tmp_path, "--turns", "9", f"--rival=a={rival.url}", "--at-least", "a=1")
    assert len(of_player(outcome, "kakeya")) == len(of_player(outcome, "a")) == 4
    assert (outcome.document["state"], outcome.status) == ("given_up", 2)
    assert figures_of(outcome, "kakeya")["left_out_after_turn"] == 4


def test_claims_are_judged(runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path) -> None:
    flags = ("--turns", "2", f"--rival=a={rival.url}", "--at-least")
    assert compare(runtime, tmp_path, *flags, "a=0.001").status == 0
    outcome = compare(runtime, tmp_path, *flags, "a=100000")
    assert outcome.status == 1
    assert outcome.document["claims"]["a"]["outcome"] == "failed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_rivals_turn(
    runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path, number: signal.Signals
) -> None:
    def interrupts(exchange: Exchange) -> None:
        os.kill(os.getpid(), number)
        exchange.connection.recv(1)  # until the client has gone

    rival.answering += [says_texts, interrupts]
    outcome = compare(runtime, tmp_path, "--turns", "9", f"--rival=a={rival.url}")
    assert outcome.status == 128 + number
    assert outcome.document["state"] == "interrupted"
    assert [turn["player"] for turn in outcome.turns] == ["kakeya", "a"]
    assert runtime.sessions.keys() == set(), "the session is closed"


def test_a_signal_in_the_runtimes_turn(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    runtime.hold_after = 1
    runtime.on_hold = lambda: os.kill(os.getpid(), signal.SIGINT)
    outcome = compare(runtime, tmp_path, "--turns", "9")
    assert (outcome.status, outcome.turns, outcome.document["state"]) == (130, [], "interrupted")
    assert runtime.sessions.keys() == set()


def test_what_there_is_so_far_is_on_disk(
    runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    monkeypatch.setattr(report_file, "write_json", lambda path, document: written.append((path.name, document)))
    compare(runtime, tmp_path, "--turns", "3", "--checkpoint-s", "0", f"--rival=a={rival.url}")
    assert [name for name, _ in written] == ["compare.json"] * 7
    assert [len(document["turns"]) for _, document in written] == [0, 1, 2, 3, 4, 5, 6]
    assert {document["state"] for _, document in written} == {"running"}
    written.clear()
    compare(runtime, tmp_path, "--turns", "3", "--checkpoint-s", "600")
    assert len(written) == 1, "not more often than asked for"


def test_between_two_checkpoints_there_is_time(
    runtime: ScriptedRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    monkeypatch.setattr(report_file, "write_json", lambda path, document: written.append(len(document["turns"])))
    moments = count()  # a second for each look at the clock
    clock = SimpleNamespace(monotonic=lambda: next(moments), perf_counter=time.perf_counter)
    monkeypatch.setattr(rounds, "time", clock)
    compare(runtime, tmp_path, "--turns", "12", "--checkpoint-s", "5")
    assert written == [0, 5, 10]


def test_progress(
    runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya.bench.progress.LINE_SECONDS", 0.0)
    rival.answering += [says_texts, refuses(400, b"no")]
    outcome = compare(runtime, tmp_path, "--turns", "4", f"--rival=a={rival.url}")
    assert "compare: 25%, about" in outcome.err
    assert "turn 2: kakeya, after a, which failed: HTTP 400: no" in outcome.err
    assert "turn 3: a, after kakeya: first token in 0.0" in outcome.err


def test_a_session_that_cannot_be_closed_costs_nobody_the_report(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    runtime.before["CloseSession"] += [fails("INVARIANT_VIOLATED")]
    assert compare(runtime, tmp_path, "--turns", "2").document["state"] == "complete"


def test_a_rival_that_stalls(runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path) -> None:
    rival.answering.append(lambda exchange: exchange.connection.recv(1) and None)
    runtime.before["AppendTokens"] += [passes, stalls]
    outcome = compare(runtime, tmp_path, "--turns", "3", "--timeout-s", "0.5", f"--rival=a={rival.url}")
    assert of_player(outcome, "a")[0]["error"] == "no whole answer within 0.5 s"
    assert of_player(outcome, "kakeya")[1]["error"].startswith("DeadlineExceeded: ")
    assert of_player(outcome, "kakeya")[2]["error"] is None
