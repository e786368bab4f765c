"""Responses, by OpenAI's client against a real socket: what it sends, what is understood of a stream."""

from typing import Any

import pytest

from kakeya_bench.compare.texts.responses import Responses
from kakeya_bench.compare.texts.text_answer import SessionSaid
from tests.unit.bench.compare.scripted_rival import DONE, Exchange, ScriptedRival, event, text_delta, told
from tests.unit.bench.compare.texts.asking_texts import MESSAGES, ask, failure

LATE = {"message": "the worker is gone", "code": "unavailable"}


def test_what_is_sent(responding: ScriptedRival) -> None:
    [answer] = ask(Responses, responding.url, key="secret", fields={"logit_bias": {"5": -100}})
    usual = {"model": "m", "input": MESSAGES, "max_output_tokens": 3, "temperature": 0, "stream": True}
    assert responding.bodies == [{**usual, "store": True, "ignore_eos": True, "logit_bias": {"5": -100}}]
    [(path, headers)] = responding.requests
    assert (path, headers["authorization"]) == ("/v1/responses", "Bearer secret")
    assert (answer.id, answer.text) == ("resp_1", "<1> <1> <1> ")
    assert 0.0 < answer.asked_at <= answer.sent_at <= answer.first_at <= answer.done_at
    assert (answer.num_prompt_tokens, answer.num_tokens, answer.num_cached_tokens) == (7, 3, 0)
    assert answer.session == SessionSaid("new", "first-turn", 7, 0)
    assert answer.num_appended_tokens == 7


@pytest.mark.parametrize("kind", ["completed", "incomplete"])
def test_a_server_that_says_no_more_than_it_has_to(rival: ScriptedRival, kind: str) -> None:
    response = {"id": "r", "object": "response", "output": [], "status": kind}
    rival.answering.append(
        lambda exchange: exchange.answer(text_delta(""), text_delta("a"), told(f"response.{kind}", response=response))
    )
    [answer] = ask(Responses, rival.url)
    assert (answer.id, answer.text, answer.session, answer.num_tokens) == ("r", "a", None, None)
    assert answer.num_appended_tokens is None


def test_a_usage_without_what_was_cached(rival: ScriptedRival) -> None:
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12, "input_tokens_details": None}
    response = {"id": "r", "object": "response", "output": [], "usage": usage}
    rival.answering.append(
        lambda exchange: exchange.answer(text_delta("a"), told("response.completed", response=response))
    )
    [answer] = ask(Responses, rival.url)
    assert (answer.num_prompt_tokens, answer.num_tokens) == (9, 3)
    assert (answer.num_cached_tokens, answer.num_appended_tokens) == (None, None)


def failed(error: Any) -> bytes:
    return told("response.failed", response={"id": "r", "object": "response", "output": [], "error": error})


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([failed(LATE)], "it broke off: the worker is gone"),
        ([failed(None)], "it broke off: it does not say why"),
        ([told("error", **LATE)], "it broke off: the worker is gone"),
        ([told("error", error=LATE, **LATE), failed(LATE)], "it broke off: the worker is gone"),
        ([DONE], "its stream ended before the answer did"),
        ([b"event: response.completed\n" + event({"type": "response.completed"})], "an event is none of its API: "),
        ([told("response.completed", response={"output": []})], "its response has no id to go on from"),
    ],
)
def test_why_there_is_no_answer(rival: ScriptedRival, pieces: list[bytes], says: str) -> None:
    def answers(exchange: Exchange) -> None:
        exchange.answer(text_delta("a"), *pieces)

    rival.answering.append(answers)
    assert failure(Responses, rival.url).startswith(says)
