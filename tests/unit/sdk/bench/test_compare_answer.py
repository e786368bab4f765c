"""What is understood of the events of an answer."""

import json
from typing import Any

import pytest

from kakeya.bench.compare.answer import DONE, Answer, AnswerReader, RivalFailed, saying


def read(*events: Any) -> Answer:
    """The events come at 1, 2, 3 ... seconds, then the end."""
    reader = AnswerReader()
    for moment, event in enumerate(events, 1):
        reader.take(json.dumps(event).encode(), float(moment))
    reader.take(DONE, float(len(events) + 1))
    return reader.answer()


def token(text: str = "a", **further: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": None, **further}]}


def last(num_tokens: int, **further: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"completion_tokens": num_tokens, **further}}


def test_ids_as_vllm_tells_them() -> None:
    answer = read(token(token_ids=[5]), token(token_ids=[6, 7]), last(3, prompt_tokens_details={"cached_tokens": 11}))
    assert answer == Answer([5, 6, 7], 3, first_at=1.0, done_at=4.0, num_cached_tokens=11)


def test_ids_as_llama_cpp_tells_them() -> None:
    def logprobs(*token_ids: int) -> dict[str, Any]:
        return {"content": [{"id": token_id, "token": "a", "logprob": -0.5} for token_id in token_ids]}

    answer = read(token(logprobs=logprobs(5)), token(logprobs=logprobs(6, 7)), last(3))
    assert answer == Answer([5, 6, 7], 3, first_at=1.0, done_at=4.0, num_cached_tokens=None)


def test_texts_alone() -> None:
    answer = read(token("a", logprobs=None), token("b"))
    assert answer == Answer(None, None, first_at=1.0, done_at=3.0, num_cached_tokens=None)


def test_ids_without_a_count() -> None:
    assert read(token(token_ids=[5]), token(token_ids=[6])).num_tokens == 2


def test_ids_of_which_some_are_missing_are_no_ids() -> None:
    answer = read(token(token_ids=[5]), token(), last(2))
    assert (answer.token_ids, answer.num_tokens) == (None, 2)


@pytest.mark.parametrize("first", [token(""), token(token_ids=[5])])
def test_the_first_token_comes_with_the_first_choice(first: dict[str, Any]) -> None:
    assert read({"choices": []}, {"usage": None}, first, token("b")).first_at == 3.0


def test_an_end_is_no_token() -> None:
    assert read(token("", finish_reason="stop"), last(0)).first_at is None
    assert read(token("a", finish_reason="length"), last(1)).first_at == 1.0
    assert read(token("", token_ids=[5], finish_reason="length"), last(1)).first_at == 1.0


def test_half_an_answer() -> None:
    reader = AnswerReader()
    reader.take(json.dumps(token()).encode(), 1.0)
    with pytest.raises(RivalFailed, match=r"^its stream ended before the answer did$"):
        reader.answer()


@pytest.mark.parametrize(
    "error", [{"message": "out of memory\nat once", "type": "server_error"}, "out of memory at once"]
)
def test_an_error_in_the_midst(error: Any) -> None:
    with pytest.raises(RivalFailed, match=r"^it broke off: out of memory at once$"):
        read(token(), {"error": error})


@pytest.mark.parametrize("data", [b"{half", b"[1]", b"\xff"])
def test_what_is_no_event(data: bytes) -> None:
    with pytest.raises(RivalFailed, match="an event is no JSON object: "):
        AnswerReader().take(data, 1.0)


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]},
        {"choices": ["a"]},
        {"choices": 5},
        token(token_ids=["five"]),
        token(token_ids=5),
        token(logprobs={"content": [{"token": "a"}]}),
        token(logprobs=["a"]),
        {"usage": {"prompt_tokens": 5}},
        {"usage": {"completion_tokens": "five"}},
        {"usage": [5]},
        {"usage": {"completion_tokens": 5, "prompt_tokens_details": [5]}},
    ],
)  # fmt: skip
def test_events_of_something_else(event: dict[str, Any]) -> None:
    with pytest.raises(RivalFailed, match="an event is none of a completion: "):
        read(event)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "no such model", "type": "x"}}', "no such model"),
        (b'{"error": "no such\\n  model"}', "no such model"),
        (b'{"error": {"code": 5}}', '{"error": {"code": 5}}'),
        (b'{"detail": "gone"}', '{"detail": "gone"}'),
        (b"Internal \x1b[31m Error\xff", "Internal \\x1b[31m Error\N{REPLACEMENT CHARACTER}"),
        (b"x" * 1000, "x" * 299 + "…"),
        (b"", ""),
        (b"[]", "[]"),
    ],
)
def test_what_an_error_says(body: bytes, said: str) -> None:
    assert saying(body) == said
