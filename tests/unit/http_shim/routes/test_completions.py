"""POST /v1/completions."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya.text.chat_tokenizer import ChatTokenizer
from tests.unit.http_shim.shim import COMPLETIONS, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails_plainly


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
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "echo": False}, "max_tokens"),
        ({"echo": "yes"}, "echo"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
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


async def test_more_text_behind_is_not_served_yet(shim: Shim) -> None:
    error = (await shim.complete(suffix="x")).json()["error"]
    assert (error["code"], error["message"]) == ("unsupported_parameter", "suffix: not supported: not served yet")


async def test_the_prompt_is_repeated(shim: Shim) -> None:
    shim.will_say(" upon a time")
    answer = (await shim.complete(echo=True)).json()
    assert answer["choices"][0]["text"] == "Once upon a time"
    assert answer["usage"]["completion_tokens"] == len(" upon a time") + 1
    assert not shim.runtime.requests["AppendTokens"][0].HasField("logprobs")


async def test_the_prompt_alone_with_its_log_probabilities(shim: Shim) -> None:
    answer = (await shim.complete(prompt="Hé!", echo=True, max_tokens=0, logprobs=1)).json()
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Hé!", "length")
    assert choice["logprobs"] == {
        "tokens": ["H", "�", "�", "!"],
        "token_logprobs": [None, -0.5, -0.5, -0.5],
        "top_logprobs": [None, *[{shim.tokenizer.decode([7]): -1.0}] * 3],
        "text_offset": [0, 1, 1, 2],
    }
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (4, 0)
    assert shim.runtime.requests["AppendTokens"][0].logprobs == 1
    assert not shim.runtime.requests["Generate"]
    await shim.nothing_left()


async def test_prompt_and_answer_with_their_log_probabilities(shim: Shim) -> None:
    shim.will_say("lo")
    choice = (await shim.complete(prompt="Hel", echo=True, logprobs=0)).json()["choices"][0]
    logprobs = choice["logprobs"]
    assert (choice["text"], logprobs["tokens"]) == ("Hello", ["H", "e", "l", "l", "o", "<|im_end|>"])
    assert logprobs["token_logprobs"] == [None, *[-0.5] * 5], "the end too: there is one for each token"
    assert logprobs["top_logprobs"] == [None, *[{}] * 5]
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4, 5]


async def test_an_answer_that_ends_at_once_is_counted_behind_its_prompt(shim: Shim) -> None:
    """As lm-evaluation-harness asks: it leaves out the last entry, which is of the one token that it has to ask for."""
    shim.will_say("")
    (choice,) = (await shim.complete(prompt="Hel", echo=True, logprobs=1, max_tokens=1)).json()["choices"]
    assert choice["logprobs"]["tokens"] == ["H", "e", "l", "<|im_end|>"]
    assert choice["finish_reason"] == "stop"


async def test_tokens_are_repeated_as_text(shim: Shim) -> None:
    prompts = [shim.tokens("a<|im_end|>b"), shim.tokens("c")]
    answer = (await shim.complete(prompt=prompts, echo=True, max_tokens=0, logprobs=0)).json()
    assert [choice["text"] for choice in answer["choices"]] == ["a<|im_end|>b", "c"]
    first, second = (choice["logprobs"] for choice in answer["choices"])
    assert first["text_offset"] == [0, 1, 1 + len("<|im_end|>")]
    assert (second["tokens"], second["token_logprobs"]) == (["c"], [None])


async def test_a_long_prompt_is_scored_in_parts(shim: Shim) -> None:
    choice = (await shim.complete(prompt="x" * 5000, echo=True, max_tokens=0, logprobs=0)).json()["choices"][0]
    assert [len(request.token_ids) for request in shim.runtime.requests["AppendTokens"]] == [4096, 904]
    assert choice["logprobs"]["token_logprobs"] == [None] + [-0.5] * 4999


async def test_the_prompt_comes_first_in_a_stream(shim: Shim) -> None:
    shim.will_say("!")
    *events, _ = await shim.events(COMPLETIONS, prompt="Once", echo=True, logprobs=0)
    choices = [event["choices"][0] for event in events]
    assert [choice["text"] for choice in choices] == ["Once", "!", "", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert [choice["logprobs"]["tokens"] for choice in choices[:3]] == [["O", "n", "c", "e"], ["!"], ["<|im_end|>"]]
    assert choices[1]["logprobs"]["text_offset"] == [4]


async def test_a_connection_that_breaks_takes_log_probabilities_with_it(shim: Shim) -> None:
    shim.runtime.after["AppendTokens"].append(fails_plainly(grpc.StatusCode.UNAVAILABLE))
    response = await shim.complete(echo=True, max_tokens=0, logprobs=0)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "logprobs_lost")
    assert response.headers["retry-after"] == "1"


async def test_a_tokenizer_that_puts_tokens_before_a_text(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    tiny_tokenizer.save_with_start(tmp_path)
    async with serving_shim(runtime, tmp_path) as shim:
        answer = (await shim.complete(prompt="ab", echo=True, max_tokens=0, logprobs=0)).json()
        (choice,) = answer["choices"]
        assert (choice["text"], choice["logprobs"]["tokens"]) == ("ab", ["<|im_start|>", "a", "b"])
        assert choice["logprobs"]["text_offset"] == [0, 0, 1]
