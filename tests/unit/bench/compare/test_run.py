"""Runs of the comparison: a scripted runtime on the one side, scripted servers of completions on the other."""

import os
import signal

import pytest

from kakeya_bench.conversation import dialogue
from kakeya_bench.report import files
from tests.unit.bench.compare.comparing import column, figures_of
from tests.unit.bench.compare.scripted_rival import Exchange, ScriptedRival, refuses, says_ids, says_texts
from tests.unit.bench.conversation.playing import RSS_BYTES, OwnClock, Play, appended
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import BYTES_PER_TOKEN, SINK, VOCAB_SIZE, WINDOW, ScriptedRuntime, fails, passes


def new_tokens(runtime: ScriptedRuntime) -> list[list[int]]:
    """Of each turn, as the first session was sent them."""
    return appended(runtime, "counter.0")


def test_everybody_gets_the_same_tokens(
    play: Play, runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival
) -> None:
    outcome = play("--turns", "6", f"--rival=a={rival.url}", f"--rival=b={other.url},every=mark", "--marks=2,5")
    said = new_tokens(runtime)
    assert [len(ids) for ids in said] == [3] * 6
    assert len({tuple(ids) for ids in said}) == 6, "each turn says something else"
    assert [prompt[-3:] for prompt in rival.prompts] == said
    assert [prompt[-3:] for prompt in other.prompts] == [said[1], said[4]]
    assert {body["max_tokens"] for body in rival.bodies} == {2}
    assert outcome.document["state"] == "complete"
    for player, indices in (("kakeya", range(1, 7)), ("a", range(1, 7)), ("b", (2, 5))):
        assert column(outcome, player, "index") == list(indices)
        assert column(outcome, player, "history_length") == [5 * index for index in indices]
        assert column(outcome, player, "num_tokens_out") == [2] * len(indices)
    assert column(outcome, "kakeya", "num_sent_tokens") == [3] * 6
    assert column(outcome, "a", "num_sent_tokens") == [3, 8, 13, 18, 23, 28] == [len(each) for each in rival.prompts]
    assert column(outcome, "b", "num_sent_tokens") == [8, 23] == [len(each) for each in other.prompts]


def test_the_same_seed_says_the_same(play: Play, runtime: ScriptedRuntime) -> None:
    for seed in ("1", "1", "2"):
        play("--turns", "3", "--seed", seed)
    first, again, another = (appended(runtime, f"counter.{number}") for number in range(3))
    assert first == again != another


def test_each_has_its_own_answers_in_its_history(
    play: Play, runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival
) -> None:
    runtime.answers += [[700, 701], [702, 703], [704, 705]]
    play("--turns", "3", f"--rival=a={rival.url}", f"--rival=b={other.url},every=mark", "--marks=3")
    one, two, three = new_tokens(runtime)
    counted = [[ids[-1] + 1, ids[-1] + 2] for ids in (one, two)]
    assert rival.prompts[2] == [*one, *counted[0], *two, *counted[1], *three], "its own"
    assert other.prompts == [[*one, 700, 701, *two, 702, 703, *three]], "the runtime's"


def test_the_order_rotates(play: Play, rival: ScriptedRival, other: ScriptedRival) -> None:
    outcome = play("--turns", "6", f"--rival=a={rival.url}", f"--rival=b={other.url},every=mark", "--marks=3,6")
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


def test_a_context_is_never_exceeded(play: Play, runtime: ScriptedRuntime, rival: ScriptedRival) -> None:
    outcome = play("--turns", "20", f"--rival=a={rival.url},context=24,keep=2,drop=8")
    said = new_tokens(runtime)
    assert max(len(prompt) for prompt in rival.prompts) + 2 <= 24
    assert all(prompt[:2] == said[0][:2] for prompt in rival.prompts)
    assert [prompt[-3:] for prompt in rival.prompts] == said
    dropped = column(outcome, "a", "num_dropped_tokens")
    assert set(dropped) == {0, 8}
    assert column(outcome, "a", "num_sent_tokens") == [5 * turn - 2 - sum(dropped[:turn]) for turn in range(1, 21)]
    assert column(outcome, "a", "history_length") == [5 * turn for turn in range(1, 21)], "the whole of it"


def test_memory_and_kv(play: Play, rival: ScriptedRival, other: ScriptedRival, config: str) -> None:
    outcome = play(
        "--turns",
        "6",
        "--config",
        str(config),
        f"--rival=a={rival.url},context=20,keep=2,drop=8",
        f"--rival=b={other.url},kv=10,pid={os.getppid()}",
    )
    live = [min(5 * index, SINK + WINDOW) * BYTES_PER_TOKEN for index in range(1, 7)]
    assert column(outcome, "kakeya", "kv_live_bytes") == live
    sent = column(outcome, "a", "num_sent_tokens")
    assert column(outcome, "a", "kv_computed_bytes") == [512 * (number + 2) for number in sent]
    assert column(outcome, "b", "kv_computed_bytes") == [512 * 5] + [512 * 10] * 5
    assert set(column(outcome, "kakeya", "kv_computed_bytes") + column(outcome, "a", "kv_live_bytes")) == {None}
    assert set(column(outcome, "kakeya", "rss_bytes")) == {RSS_BYTES}
    assert min(column(outcome, "a", "rss_bytes")) > 1 << 20, "this process listens"
    rss = {name: figures_of(outcome.document, name)["rss_bytes"]["start"] for name in ("kakeya", "a", "b")}
    assert rss["kakeya"] == RSS_BYTES
    assert min(rss.values()) > 1 << 20
    assert outcome.document["rival_kv"] == {"dtype": "float16", "bytes_per_token": 512, "why_not": ""}
    assert outcome.document["model"]["kv_bytes_per_token"] == BYTES_PER_TOKEN


def test_what_is_not_known(play: Play, admin: ScriptedAdmin, rival: ScriptedRival) -> None:
    admin.workers.clear()
    rival.usual = says_texts
    outcome = play("--turns", "3", f"--rival=a={rival.url}")
    assert column(outcome, "kakeya", "rss_bytes") == column(outcome, "a", "kv_computed_bytes") == [None] * 3
    assert outcome.document["rival_kv"]["why_not"].startswith("the config.json of 'counter' is not known")
    assert column(outcome, "a", "num_tokens_out") == [None] * 3
    assert column(outcome, "a", "knows_answer") == [False] * 3
    assert [len(prompt) for prompt in rival.prompts] == [3, 8, 13], "others stand in for the ids of an answer"
    assert rival.prompts[2][:8] == rival.prompts[1]


def test_everybody_warms_up_with_something_else(
    play: Play, runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival
) -> None:
    other.answering.append(refuses(503, b"loading"))
    flags = (f"--rival=a={rival.url}", f"--rival=b={other.url}", "--warm-up-turns", "2")
    outcome = play("--turns", "2", *flags)
    said = new_tokens(runtime)
    warm_up = [ids for session in ("counter.1", "counter.2") for ids in appended(runtime, session)]
    assert len(said) == len(warm_up) == 2
    assert not {tuple(ids) for ids in said} & {tuple(ids) for ids in warm_up}
    assert rival.prompts[:3] == [*warm_up, said[0]]
    closed = [request.session_id for request in runtime.requests["CloseSession"]]
    assert closed == ["counter.1", "counter.2", "counter.0"]
    assert column(outcome, "b", "error") == [None, None], "who refuses to warm up may play"


def test_a_rival_that_fails_again_and_again_is_left_out(
    play: Play, rival: ScriptedRival, other: ScriptedRival, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(exchange: Exchange) -> None:
        exchange.body["max_tokens"] = 1
        says_ids(exchange)

    monkeypatch.setattr("kakeya_bench.report.progress.LINE_SECONDS", 0.0)
    rival.answering += [stops, refuses(400, b'{"error": {"message": "no"}}'), says_texts]
    rival.usual = Exchange.break_off
    outcome = play("--turns", "8", f"--rival=a={rival.url}", f"--rival=b={other.url}", "--at-least", "a=1")
    short, *others = column(outcome, "a", "error")
    gone = "RemoteProtocolError: Server disconnected without sending a response."
    assert short.startswith("its answer has a length of 1, not 2: ")
    assert others == ["HTTP 400: no", None, gone, gone, gone]
    assert [len(prompt) for prompt in rival.prompts] == [3, 8, 13, 18, 23, 28], "a turn that failed is in the history"
    assert figures_of(outcome.document, "a")["left_out_after_turn"] == 6
    assert column(outcome, "b", "error") == column(outcome, "kakeya", "error") == [None] * 8, "the others go on"
    assert (outcome.document["state"], outcome.status) == ("complete", 2)
    assert outcome.document["claims"]["a"]["outcome"] == "undecided"
    assert "compare: 12%, about" in outcome.err
    assert "turn 2: b, after a, which failed: HTTP 400: no" in outcome.err
    assert "turn 2: kakeya, after b: first token in " in outcome.err


def test_the_runtime_goes_on_in_another_session(
    play: Play, runtime: ScriptedRuntime, rival: ScriptedRival, other: ScriptedRival, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogue, "LONGEST_APPEND", 4)
    rival.answering += [says_ids, refuses(500, b"no")]
    runtime.before["Generate"] += [passes, fails("SESSION_NOT_FOUND"), passes]
    outcome = play("--turns", "3", f"--rival=a={rival.url}", f"--rival=b={other.url},every=mark", "--marks=3")
    first, second, third = column(outcome, "kakeya", "error")
    assert (first, third) == (None, None)
    assert second.startswith("SessionNotFound: ")
    again = appended(runtime, "counter.1")
    history = [token for part in again for token in part]
    assert history == rival.prompts[2] == other.prompts[0], "all of it; the same stands in for the lost answers"
    assert history[3:5] == [(history[2] + 1) % VOCAB_SIZE, (history[2] + 2) % VOCAB_SIZE] != history[8:10]
    assert [len(part) for part in again] == [4, 4, 2, 3], "what was before is not part of the turn"
    assert column(outcome, "kakeya", "num_sent_tokens")[2] == 3
    assert column(outcome, "kakeya", "history_length")[2] == 15
    assert runtime.sessions.keys() == set()


def test_a_runtime_that_fails_again_and_again_ends_the_run(
    play: Play, runtime: ScriptedRuntime, rival: ScriptedRival
) -> None:
    runtime.before["Generate"] += [passes, *[fails("SESSION_NOT_FOUND")] * 3]
    outcome = play("--turns", "9", f"--rival=a={rival.url}", "--at-least", "a=1")
    assert column(outcome, "kakeya", "index") == column(outcome, "a", "index") == [1, 2, 3, 4]
    assert (outcome.document["state"], outcome.status) == ("given_up", 2)
    assert figures_of(outcome.document, "kakeya")["left_out_after_turn"] == 4


def test_a_signal_in_the_runtimes_turn(play: Play, runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 1
    runtime.on_hold = lambda: os.kill(os.getpid(), signal.SIGTERM)
    outcome = play("--turns", "9")
    assert (outcome.status, outcome.turns, outcome.document["state"]) == (143, [], "interrupted")
    assert runtime.sessions.keys() == set()


def test_what_there_is_so_far_is_on_disk(
    play: Play, runtime: ScriptedRuntime, rival: ScriptedRival, own_clock: OwnClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    monkeypatch.setattr(files, "write_json", lambda path, document: written.append((path.name, document)))
    runtime.before["AppendTokens"] += [own_clock.takes(5.0)] * 6
    play("--turns", "6", "--checkpoint-s", "10", f"--rival=a={rival.url}")
    assert {(name, document["state"]) for name, document in written} == {("compare.json", "running")}
    assert [len(document["turns"]) for _, document in written] == [0, 4, 8, 12], "after two of the runtime's turns"


def test_a_session_that_cannot_be_closed_costs_nobody_the_report(play: Play, runtime: ScriptedRuntime) -> None:
    runtime.before["CloseSession"] += [fails("INVARIANT_VIOLATED")]
    outcome = play("--turns", "2")
    assert outcome.document["state"] == "complete"
    assert "a session was not closed and will expire: InvariantViolated: " in outcome.err
