"""What is understood of the events of an answer."""

import json
from typing import Any

import pytest

from kakeya_bench.compare.completions import DONE, Answer, RivalFailed, saying


def read(*events: Any) -> tuple[Any, ...]:
    """The events come at 1, 2, 3 ... seconds, then the end: ids, their number, when the first came, cached tokens."""
    answer = Answer()
    for moment, event in enumerate(events, 1):
        answer.take(json.dumps(event), float(moment))
    answer.take("", 0.5)  # an event without data is none
    answer.take(DONE, float(len(events) + 1))
    assert answer.done_at == len(events) + 1
    return answer.token_ids, answer.num_tokens, answer.first_at, answer.num_cached_tokens


def token(text: str = "a", **further: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": None, **further}]}


def last(num_tokens: int, **further: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"completion_tokens": num_tokens, **further}}


def logprobs(*token_ids: int) -> dict[str, Any]:
    return {"content": [{"id": token_id, "token": "a", "logprob": -0.5} for token_id in token_ids]}


CACHED = {"prompt_tokens_details": {"cached_tokens": 11}}


@pytest.mark.parametrize(
    ("events", "understood"),
    [
        ([token(token_ids=[5]), token(token_ids=[6, 7]), last(3, **CACHED)], ([5, 6, 7], 3, 1.0, 11)),  # vLLM
        (
            [token(logprobs=logprobs(5)), token(logprobs=logprobs(6, 7)), last(3)],
            ([5, 6, 7], 3, 1.0, None),
        ),  # llama.cpp
        ([token("a", logprobs=None), token("b")], (None, None, 1.0, None)),  # OpenAI, texts alone
        ([token(token_ids=[5]), token(token_ids=[6])], ([5, 6], 2, 1.0, None)),  # no count
        ([token(token_ids=[5]), token(), last(2)], (None, 2, 1.0, None)),  # some ids are missing
        ([{"choices": []}, {"usage": None}, token(""), token("b")], (None, None, 3.0, None)),  # half a letter
        ([token("", finish_reason="stop"), last(0)], (None, 0, None, None)),  # an end is no token
        ([token("", token_ids=[5], finish_reason="length"), last(1)], ([5], 1, 1.0, None)),
        ([last(1, prompt_tokens_details=None)], (None, 1, None, None)),
    ],
)
def test_answers(events: list[Any], understood: tuple[Any, ...]) -> None:
    assert read(*events) == understood


@pytest.mark.parametrize(
    "data",
    [
        "{half", "[1]", "\N{REPLACEMENT CHARACTER}", '{"choices": [{"delta": {"content": "a"}}]}', '{"choices": 5}',
        '{"choices": [{"text": "a", "token_ids": ["five"]}]}', '{"choices": [{"text": "a", "logprobs": ["a"]}]}',
        '{"choices": [{"text": "a", "logprobs": {"content": [{"token": "a"}]}}]}',
        '{"usage": {"completion_tokens": "five"}}',
    ],
)  # fmt: skip
def test_events_of_something_else(data: str) -> None:
    with pytest.raises(RivalFailed, match=r"^an event is none of a completion: "):
        Answer().take(data, 1.0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "no such model", "type": "x"}}', "no such model"),
        ('{"error": "no such\\n  model"}', "no such model"),
        ('{"error": {"code": 5}}', '{"error": {"code": 5}}'),
        ("Internal \x1b[31m Error", "Internal \\x1b[31m Error"),
        ("x" * 1000, "x" * 299 + "…"),
        ("[]", "[]"),
    ],
)
def test_what_an_error_says(body: str, said: str) -> None:
    assert saying(body) == said
