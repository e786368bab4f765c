"""POST /v1/completions."""

from typing import Any

import pytest

from kakeya.text.chat_tokenizer import ChatTokenizer
from tests.unit.http_shim.shim import Shim


async def test_an_answer(shim: Shim) -> None:
    shim.will_say(" upon a time")
    answer = (await shim.complete(max_tokens=30)).json()
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": " upon a time", "logprobs": None, "finish_reason": "stop"}]
    assert answer["usage"]["prompt_tokens"] == 4
    assert not shim.runtime.requests["CreateSession"][0].HasField("pin")


async def test_sixteen_tokens_unless_told_otherwise(shim: Shim) -> None:
    await shim.complete()
    assert shim.runtime.requests["Generate"][0].max_tokens == 16


async def test_a_text_of_no_tokens(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChatTokenizer, "encode", lambda *_, **__: [])
    response = await shim.complete(prompt="said for nothing")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")
    assert "no tokens to go on from" in response.json()["error"]["message"]
    assert not shim.runtime.requests["CreateSession"]


@pytest.mark.parametrize(
    ("prompt", "appended"),
    [
        ("ab", [["ab"]]),
        (["ab", "c"], [["ab"], ["c"]]),
        ([1, 2], [[1, 2]]),
        ([1.0, 2], [[1, 2]]),
        ([[1], [2.0]], [[1], [2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
async def test_kinds_of_prompts(shim: Shim, prompt: Any, appended: list[list[Any]]) -> None:
    answer = (await shim.complete(prompt=prompt, max_tokens=1)).json()
    wanted = [shim.tokens(each[0]) if isinstance(each[0], str) else each for each in appended]
    got = [list(request.token_ids) for request in shim.runtime.requests["AppendTokens"]]
    assert sorted(got) == sorted(wanted)
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(wanted)))


async def test_several_answers_of_several_prompts(shim: Shim) -> None:
    answer = (await shim.complete(prompt=[[1], [100]], n=2, max_tokens=1)).json()
    assert len(answer["choices"]) == 4
    texts = [choice["text"] for choice in answer["choices"]]
    assert texts[0] == texts[1] != texts[2] == texts[3], "the prompt's index first, then the answer's"
    assert answer["usage"]["prompt_tokens"] == 2, "each prompt is counted once"
    assert answer["usage"]["completion_tokens"] == 4


async def test_log_probabilities(shim: Shim) -> None:
    shim.will_say("Hé!")
    logprobs = (await shim.complete(logprobs=2)).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["H", "�", "�", "!"]
    assert logprobs["token_logprobs"] == [-0.5] * 4
    assert logprobs["text_offset"] == [0, 1, 1, 2]
    assert [len(top) for top in logprobs["top_logprobs"]] == [2] * 4


async def test_log_probabilities_of_the_choice_alone(shim: Shim) -> None:
    shim.will_say("H")
    logprobs = (await shim.complete(logprobs=0)).json()["choices"][0]["logprobs"]
    assert (logprobs["tokens"], logprobs["top_logprobs"]) == (["H"], [{}])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [1000]}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a"] * 5, "n": 2}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 6}, "logprobs"),
        ({"messages": ["Hello"]}, "messages"),
    ],
)
async def test_refusals(shim: Shim, fields: dict[str, Any], param: str) -> None:
    response = await shim.complete(**fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert not shim.runtime.requests["CreateSession"]


async def test_what_changes_nothing(shim: Shim) -> None:
    response = await shim.complete(best_of=1, echo=False, suffix="", user="me", max_tokens=1)
    assert response.status_code == 200
