"""Runs with a client of texts beside the scripted runtime: what it sends, what is counted, what is claimed."""

import os
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.compare import processes
from kakeya_bench.compare.texts import text_player
from kakeya_bench.compare.turns import LongChat
from tests.unit.bench.compare.comparing import column, figures_of
from tests.unit.bench.compare.scripted_rival import (
    Exchange,
    ScriptedRival,
    num_tokens,
    refuses,
    says_chat,
    says_response,
)
from tests.unit.bench.conversation.playing import Outcome, Play, appended
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

CLAIMS = ("--at-most=a=1000+60000", "--goes-on=a")
NEW = ("--new-tokens", "12")
"""Of which six are written around a message."""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_player, "SETTLE_SECONDS", 0.0)


@pytest.fixture
def chat(play: Play, chatting: ScriptedRival, words: Path) -> Play:
    """Runs the bench with one client of chats, `a`."""

    def played(*flags: str, options: str = "") -> Outcome:
        return play(*NEW, f"--rival=a={chatting.url},api=chat,model=counter,tokenizer={words}{options}", *flags)

    return played


@pytest.fixture
def chain(play: Play, responding: ScriptedRival, words: Path) -> Play:
    """Likewise with one of responses."""

    def played(*flags: str, options: str = "") -> Outcome:
        return play(*NEW, f"--rival=a={responding.url},api=responses,model=counter,tokenizer={words}{options}", *flags)

    return played


def texts(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in body.get("messages") or body["input"]]


def outcomes(outcome: Outcome) -> dict[str, str]:
    """Of the claims."""
    return {name: claim["outcome"] for name, claim in outcome.document["claims"].items()}


def test_all_is_sent_again_and_answers_as_they_came(
    chat: Play, chatting: ScriptedRival, runtime: ScriptedRuntime
) -> None:
    outcome = chat("--turns", "4", *CLAIMS)
    said = [" ".join(f"<{token_id}>" for token_id in ids[:6]) for ids in appended(runtime, "counter.0")]
    sent = [texts(body) for body in chatting.bodies]
    assert [len(each) for each in sent] == [1, 3, 5, 7]
    assert all(later[: len(before)] == before for before, later in pairwise(sent))
    assert [text for role, text in sent[-1] if role == "user"] == said, "the tokens that the runtime is told"
    assert [text for role, text in sent[-1] if role == "assistant"] == ["<1> <1> ", "<3> <3> ", "<5> <5> "]
    assert column(outcome, "a", "error") == [None] * 4
    assert outcome.status == 0, outcome.document["claims"]


def test_what_is_counted(chat: Play, chatting: ScriptedRival, config: Path) -> None:
    outcome = chat("--turns", "3", "--config", str(config), options=",kv=30")
    totals = [num_tokens(body["messages"]) for body in chatting.bodies]
    assert column(outcome, "a", "num_new_tokens") == [11, 12, 12] == column(outcome, "a", "num_appended_tokens")
    assert column(outcome, "a", "num_sent_tokens") == totals == [11, 25, 39]
    assert column(outcome, "a", "num_cached_tokens") == [0, 13, 27]
    assert column(outcome, "a", "history_length") == [total + 2 for total in totals]
    assert column(outcome, "a", "kv_computed_bytes") == [512 * 13, 512 * 27, 512 * 30]
    assert column(outcome, "a", "session_state") == ["new", "continued", "continued"]
    assert column(outcome, "a", "session_why") == ["first-turn", "next-turn", "next-turn"]
    assert min(column(outcome, "a", "client_seconds")) >= 0.0
    assert min(column(outcome, "a", "time_to_first_token_seconds")) > 0.0
    assert min(column(outcome, "a", "rss_bytes")) > 1 << 20
    assert column(outcome, "kakeya", "num_new_tokens") == [None] * 3
    found = figures_of(outcome.document, "a")
    assert (found["num_new_tokens"], found["num_appended_tokens"], found["num_continued_turns"]) == (35, 35, 2)
    assert found["long_chat"] is None


def test_a_turn_that_fails(chat: Play, chatting: ScriptedRival) -> None:
    def stops(exchange: Exchange) -> None:
        exchange.body["max_tokens"] = 1
        says_chat(exchange)

    chatting.answering += [says_chat, refuses(500, b"no"), stops]
    outcome = chat("--turns", "4", *CLAIMS)
    assert column(outcome, "a", "error")[1] == "HTTP 500: no"
    assert column(outcome, "a", "error")[2].startswith("its answer has a length of 1, not 2: ")
    messages = texts(chatting.bodies[3])
    assert [role for role, _ in messages] == ["user", "assistant"] * 3 + ["user"]
    assert all(len(text.split()) == 2 for role, text in messages if role == "assistant"), "something stands for them"
    assert outcomes(outcome) == {"a first token": "undecided", "a appended": "failed", "a continued": "failed"}


def test_other_servers_and_other_answers(chat: Play, chatting: ScriptedRival) -> None:
    chatting.answering += [says_chat, partial(says_chat, more=1), partial(says_chat, said="new template")]
    outcome = chat("--turns", "4", *CLAIMS)
    claims = outcome.document["claims"]
    assert outcome.status == 1
    assert claims["a appended"]["reason"] == "48 appended in 4 turns, 47 new. turn 2: 13 for 12"
    assert claims["a continued"]["reason"] == "2 of 3 turns. turn 3: new (template)"


def test_it_warms_up_with_something_else(chat: Play, chatting: ScriptedRival) -> None:
    chatting.answering.append(refuses(503, b"loading"))
    chat("--turns", "2", "--warm-up-turns", "2")
    first, second, *played = [texts(body) for body in chatting.bodies]
    assert [len(first), len(second)] == [1, 1] == [len(first), len(played[0])]
    assert len({*first, *second, *played[0]}) == 3


def test_a_long_chat(chat: Play, chatting: ScriptedRival) -> None:
    outcome = chat("--turns", "2", "--cpu-at-most=a=60000", options=f",messages=8,pid={os.getpid()}")
    long = chatting.bodies[2:]
    assert [len(body["messages"]) for body in long] == [7, *range(9, 31, 2)], "it is opened by a shorter one"
    found = figures_of(outcome.document, "a")["long_chat"]
    assert (found["num_messages"], found["error"]) == (9, None)
    assert len(found["cpu_seconds"]) == 11 == text_player.NUM_LONG_REQUESTS
    assert min(found["cpu_seconds"]) > 0.0
    assert found["session_states"] == ["continued"] * 11
    assert outcome.document["claims"]["a cpu"]["outcome"] == "passed"
    assert outcome.document["claims"]["a cpu"]["reason"].startswith(
        "processor time for 9 messages, median of 11 requests "
    )
    bodies = [message for body in chatting.bodies[:2] for message in texts(body) if message[0] == "user"]
    assert not {*bodies} & {*texts(long[0])}, "another conversation"


def test_a_long_chat_that_fails(chat: Play, chatting: ScriptedRival) -> None:
    chatting.answering += [says_chat] * 4 + [refuses(500, b"no")]
    outcome = chat("--turns", "2", "--cpu-at-most=a=60000", options=",messages=3")
    found = figures_of(outcome.document, "a")["long_chat"]
    assert (len(found["cpu_seconds"]), found["error"]) == (1, "HTTP 500: no")
    claim = outcome.document["claims"]["a cpu"]
    assert (claim["outcome"], claim["reason"], outcome.status) == ("undecided", "HTTP 500: no", 2)


def test_processor_time_that_is_not_known(chat: Play, chatting: ScriptedRival, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cpu_seconds", lambda pids: None)
    outcome = chat("--turns", "1", "--cpu-at-most=a=60000", options=",messages=3")
    assert figures_of(outcome.document, "a")["long_chat"]["cpu_seconds"] == []
    assert outcome.document["claims"]["a cpu"]["reason"] == "the time of its process is not known"


def test_a_server_that_says_nothing_of_sessions(
    chat: Play, chatting: ScriptedRival, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Exchange.answer

    def without_header(exchange: Exchange, *pieces: bytes, **_: Any) -> None:
        answer(exchange, *pieces)

    monkeypatch.setattr(Exchange, "answer", without_header)
    outcome = chat("--turns", "2", *CLAIMS, "--cpu-at-most=a=60000", options=",messages=3")
    assert column(outcome, "a", "session_state") == [None, None]
    assert outcomes(outcome) == {
        "a first token": "passed",
        "a appended": "undecided",
        "a continued": "undecided",
        "a cpu": "passed",
    }
    assert LongChat(**figures_of(outcome.document, "a")["long_chat"]).session_states == []


def test_a_response_is_sent_what_is_new(chain: Play, responding: ScriptedRival, runtime: ScriptedRuntime) -> None:
    outcome = chain("--turns", "4", *CLAIMS, options=",kv=30")
    said = [" ".join(f"<{token_id}>" for token_id in ids[:6]) for ids in appended(runtime, "counter.0")]
    sent = [texts(body) for body in responding.bodies]
    assert sent == [[("user", text)] for text in said]
    assert [body.get("previous_response_id") for body in responding.bodies] == [None, "resp_1", "resp_2", "resp_3"]
    assert {body["store"] for body in responding.bodies} == {True}
    totals = [11, 25, 39, 53]
    assert column(outcome, "a", "num_new_tokens") == [11, 12, 12, 12] == column(outcome, "a", "num_appended_tokens")
    assert column(outcome, "a", "num_sent_tokens") == [11, 12, 12, 12]
    assert column(outcome, "a", "num_cached_tokens") == [0, 13, 27, 41]
    assert column(outcome, "a", "history_length") == [total + 2 for total in totals]
    assert column(outcome, "a", "session_state") == ["new", *["continued"] * 3]
    assert column(outcome, "a", "error") == [None] * 4
    assert outcome.status == 0, outcome.document["claims"]


def test_a_response_that_fails(chain: Play, responding: ScriptedRival) -> None:
    responding.answering += [says_response, refuses(500, b"no"), refuses(500, b"no")]
    outcome = chain("--turns", "5", *CLAIMS)
    assert column(outcome, "a", "error") == [None, "HTTP 500: no", "HTTP 500: no", None, None]
    fourth, fifth = responding.bodies[3:]
    assert [role for role, _ in texts(fourth)] == ["user", "assistant", "user", "assistant", "user"]
    assert all(len(text.split()) == 2 for role, text in texts(fourth) if role == "assistant"), "something stands there"
    assert fourth["previous_response_id"] == "resp_1", "the last one that there is"
    assert ([role for role, _ in texts(fifth)], fifth["previous_response_id"]) == (["user"], "resp_2")
    assert outcomes(outcome) == {"a first token": "undecided", "a appended": "failed", "a continued": "failed"}


def test_responses_of_which_more_is_appended(chain: Play, responding: ScriptedRival) -> None:
    responding.answering += [says_response, partial(says_response, more=1), partial(says_response, said="new template")]
    claims = chain("--turns", "4", *CLAIMS).document["claims"]
    assert claims["a appended"]["reason"] == "48 appended in 4 turns, 47 new. turn 2: 13 for 12"
    assert claims["a continued"]["reason"] == "2 of 3 turns. turn 3: new (template)"


def test_a_long_chain(chain: Play, responding: ScriptedRival) -> None:
    outcome = chain("--turns", "2", "--cpu-at-most=a=60000", options=f",messages=8,pid={os.getpid()}")
    first, *later = responding.bodies[2:]
    assert (len(texts(first)), first.get("previous_response_id")) == (7, None), "it is opened by a shorter one"
    assert [len(texts(body)) for body in later] == [1] * 11
    found = figures_of(outcome.document, "a")["long_chat"]
    assert (found["num_messages"], found["error"]) == (9, None)
    assert found["session_states"] == ["continued"] * 11


def test_two_players_have_conversations_of_their_own(
    chat: Play, chatting: ScriptedRival, other: ScriptedRival, words: Path, runtime: ScriptedRuntime
) -> None:
    other.usual = says_response
    flag = f"--rival=b={other.url},api=responses,model=counter,tokenizer={words},messages=5"
    outcome = chat("--turns", "2", flag, "--goes-on=a,b", options=",messages=5")
    for ours, theirs in ((0, 0), (2, 2)):
        of_a, of_b = (texts(rival.bodies[place])[0][1].split() for rival, place in ((chatting, ours), (other, theirs)))
        assert of_a != of_b
        assert of_a[1:] == of_b[:-1], "the same words, turned"
    assert texts(chatting.bodies[1])[-1] == texts(other.bodies[1])[-1], "from the second message on the same"
    assert outcome.status == 0, outcome.document["claims"]
