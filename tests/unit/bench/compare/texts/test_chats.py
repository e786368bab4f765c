"""Chats, by OpenAI's client against a real socket: what it sends, what is understood of an answer."""

import pytest

from kakeya_bench.compare.texts.chats import Chats
from kakeya_bench.compare.texts.text_answer import SessionSaid
from tests.unit.bench.compare.scripted_rival import DONE, ScriptedRival, delta, event
from tests.unit.bench.compare.texts.asking_texts import MESSAGES, ask


def test_what_is_sent(chatting: ScriptedRival, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which is not measured
    [answer] = ask(Chats, chatting.url, key="secret", fields={"ignore_eos": None, "logit_bias": {"5": -100}})
    usual = {"model": "m", "messages": MESSAGES, "max_tokens": 3, "temperature": 0, "stream": True}
    assert chatting.bodies == [{**usual, "stream_options": {"include_usage": True}, "logit_bias": {"5": -100}}]
    [(path, headers)] = chatting.requests
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer secret")
    assert headers["user-agent"].startswith("AsyncOpenAI/Python ")
    assert answer.text == "<1> <1> <1> "
    assert 0.0 < answer.asked_at <= answer.sent_at <= answer.first_at <= answer.done_at
    assert (answer.num_prompt_tokens, answer.num_tokens, answer.num_cached_tokens) == (7, 3, 0)
    assert answer.session == SessionSaid("new", "first-turn", 7, 0)
    assert answer.num_appended_tokens == 7


def test_a_server_that_says_no_more_than_it_has_to(rival: ScriptedRival) -> None:
    rival.answering.append(lambda exchange: exchange.answer(delta("a"), delta("b", "length"), DONE))
    [answer] = ask(Chats, rival.url)
    assert (answer.text, answer.session, answer.num_tokens, answer.num_cached_tokens) == ("ab", None, None, None)
    usage = {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    rival.answering.append(
        lambda exchange: exchange.answer(delta("a", "stop"), event({"choices": [], "usage": usage}), DONE)
    )
    [answer] = ask(Chats, rival.url)
    assert (answer.num_prompt_tokens, answer.num_tokens, answer.num_cached_tokens) == (1, 3, None)
    assert answer.num_appended_tokens is None
