"""POST /v1/chat/completions: what comes in becomes a session's tokens, what comes out becomes an answer."""

import time
from pathlib import Path
from typing import Any

import pytest

from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import FINGERPRINT, ScriptedRuntime

PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


async def test_an_answer(shim: Shim) -> None:
    shim.will_say("Hi there!")
    before = int(time.time())
    response = await shim.chat(max_tokens=20)
    assert response.status_code == 200, response.text
    answer = response.json()
    num_prompt_tokens = len(shim.tokens(PROMPT))
    assert answer.pop("id").startswith("chatcmpl-")
    assert before <= answer.pop("created") <= time.time()
    length = num_prompt_tokens + 10
    assert answer == {
        "object": "chat.completion",
        "model": "counter",
        "system_fingerprint": f"fp_{FINGERPRINT[:16]}",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi there!", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": 10,  # nine letters and the end
            "total_tokens": length,
            "prompt_tokens_details": {"cached_tokens": 0},
            "kakeya": {"history": length, "retained": 20, "evicted": length - 20},
        },
    }


async def test_the_session_that_it_makes(shim: Shim) -> None:
    shim.will_say("Hi!")
    response = await shim.chat(model="counter", messages=[{"role": "system", "content": "Be kind."}, *HELLO])
    created, appended = shim.runtime.requests["CreateSession"][0], shim.runtime.requests["AppendTokens"][0]
    system = "<|im_start|>system\nBe kind.<|im_end|>\n"
    assert (created.model, list(created.eos_token_ids)) == ("counter", shim.tokenizer.eos_token_ids)
    assert created.pin == len(shim.tokens(system)), "the system prompt stays in sight"
    assert created.ttl_seconds == 60
    assert created.client_label == f"http {response.headers['x-request-id']}"
    assert list(appended.token_ids) == shim.tokens(system + PROMPT)
    await shim.nothing_left()


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"max_tokens": 7}, {"max_tokens": 7}),
        ({"max_completion_tokens": 7}, {"max_tokens": 7}),
        ({}, {"max_tokens": 4096, "temperature": 1.0}),
        ({"temperature": 0}, {"temperature": 0.0}),
        ({"temperature": 0.5}, {"temperature": 0.5}),
        ({"top_p": 0.25}, {"top_p": 0.25}),
        ({"top_p": 5e-324}, {"top_p": 2**-126}),
        ({"top_k": 3}, {"top_k": 3}),
        ({"min_p": 0.5}, {"min_p": 0.5}),
        ({"presence_penalty": -1.5}, {"presence_penalty": -1.5}),
        ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
        ({"logit_bias": {"5": -100, "6": 1}}, {"logit_bias": {5: -100.0, 6: 1.0}}),
        ({"seed": 42}, {"seed": 42}),
        ({"seed": -1}, {"seed": (1 << 64) - 1}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 5}, {"logprobs": 5}),
    ],
)
async def test_what_the_runtime_is_asked_for(shim: Shim, fields: dict[str, Any], sent: dict[str, Any]) -> None:
    shim.will_say("Hi!")
    assert (await shim.chat(**fields)).status_code == 200
    request = shim.runtime.requests["Generate"][0]
    for name, value in sent.items():
        got = getattr(request, name)
        assert (dict(got) if isinstance(value, dict) else got) == value
        assert name in ("logit_bias", "max_tokens") or request.HasField(name)


async def test_what_is_not_asked_for_is_not_sent(shim: Shim) -> None:
    shim.will_say("Hi!")
    await shim.chat()
    request = shim.runtime.requests["Generate"][0]
    for name in ("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "seed", "logprobs"):
        assert not request.HasField(name), name


async def test_an_answer_that_is_cut(shim: Shim) -> None:
    shim.will_say("Hi there!", ends=False)
    choice = (await shim.chat(max_tokens=4)).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Hi t", "length")


async def test_all_roles_and_parts(shim: Shim) -> None:
    shim.will_say("Hi!")
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}], "name": "Ann"},
        {"role": "assistant", "content": "Hi.", "tool_calls": [call]},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
        {"role": "assistant", "tool_calls": [call]},
    ]
    assert (await shim.chat(messages=messages)).status_code == 200
    said = [("system", "Be kind."), ("user", "Hello"), ("assistant", "Hi."), ("tool", "4"), ("assistant", "")]
    rendered = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in said)
    prompt = list(shim.runtime.requests["AppendTokens"][0].token_ids)
    assert prompt == shim.tokens(rendered + "<|im_start|>assistant\n")


async def test_a_long_prompt_goes_in_parts(shim: Shim) -> None:
    shim.will_say("Hi!")
    await shim.chat(messages=[{"role": "user", "content": "x" * 70_000}])
    lengths = [len(request.token_ids) for request in shim.runtime.requests["AppendTokens"]]
    assert lengths == [65536, 70_000 + len(shim.tokens(PROMPT)) - 5 - 65536]


async def test_stop_texts_across_token_borders(shim: Shim) -> None:
    shim.will_say("one two three four")
    answer = (await shim.chat(stop=["three", "zero"])).json()
    assert answer["choices"][0]["message"]["content"] == "one two "
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == len("one two three")
    await shim.nothing_left()


async def test_a_stop_text_that_does_not_come_is_given_out(shim: Shim) -> None:
    shim.will_say("one two thr")
    answer = (await shim.chat(stop="three")).json()
    assert answer["choices"][0]["message"]["content"] == "one two thr"


async def test_several_answers(shim: Shim) -> None:
    shim.will_say("One.", "Two.", "Three.")
    answer = (await shim.chat(n=3, seed=5)).json()
    assert {choice["message"]["content"] for choice in answer["choices"]} == {"One.", "Two.", "Three."}
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    seeds = [request.seed for request in shim.runtime.requests["Generate"]]
    assert len(set(seeds)) == 3
    assert 5 in seeds
    num_prompt_tokens = len(shim.tokens(PROMPT))
    assert answer["usage"]["prompt_tokens"] == num_prompt_tokens, "counted once"
    assert answer["usage"]["completion_tokens"] == len("One.Two.Three.") + 3


async def test_no_seed_is_drawn_here(shim: Shim) -> None:
    shim.will_say("One.", "Two.")
    await shim.chat(n=2)
    assert not any(request.HasField("seed") for request in shim.runtime.requests["Generate"])


async def test_log_probabilities(shim: Shim) -> None:
    shim.will_say("Hé")
    content = (await shim.chat(logprobs=True, top_logprobs=2)).json()["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in content] == [[0x48], [0xC3], [0xA9]], "the end is not among them"
    assert [entry["token"] for entry in content] == ["H", "�", "�"]
    assert [entry["logprob"] for entry in content] == [-0.5] * 3
    assert [top["logprob"] for top in content[0]["top_logprobs"]] == [-1.0, -2.0]


async def test_a_token_whose_log_probability_nobody_knows_any_more(shim: Shim) -> None:
    shim.will_say("bc")
    shim.runtime.unusual_responses += [pb.GenerateResponse(token_id=token_id) for token_id in shim.tokens("a")]
    choice = (await shim.chat(logprobs=True)).json()["choices"][0]
    assert choice["message"]["content"] == "abc"
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["b", "c"]


async def test_no_log_probabilities_of_what_a_stop_text_cut_off(shim: Shim) -> None:
    shim.will_say("ab<stop>")
    choice = (await shim.chat(logprobs=True, stop="<stop>")).json()["choices"][0]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["a", "b"]


@pytest.mark.parametrize(("fields", "policy"), [({}, 1), ({"kakeya": {"on_overflow": "refuse"}}, 2)])
async def test_what_happens_to_what_does_not_fit(shim: Shim, fields: dict[str, Any], policy: int) -> None:
    shim.will_say("Hi!")
    assert (await shim.chat(**fields)).status_code == 200
    assert shim.runtime.requests["CreateSession"][0].on_overflow == policy


async def test_flags_that_requests_do_not_overrule(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    flags = ("--on-overflow", "refuse", "--default-max-tokens", "9", "--max-append-tokens", "5", "--router-wait-s", "0")
    async with serving_shim(runtime, tokenizer_dir, *flags) as shim:
        shim.will_say("Hi!")
        assert (await shim.chat()).status_code == 200
        assert runtime.requests["CreateSession"][0].on_overflow == pb.OVERFLOW_POLICY_REFUSE
        assert runtime.requests["Generate"][0].max_tokens == 9
        assert {len(request.token_ids) for request in runtime.requests["AppendTokens"][:-1]} == {5}


async def test_a_session_that_is_full(shim: Shim) -> None:
    done = pb.GenerateDone(stop_reason=pb.STOP_REASON_TRUNCATED, history_length=40)
    shim.runtime.unusual_responses.append(pb.GenerateResponse(done=done))
    answer = (await shim.chat()).json()
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_what_is_seen_after_a_stop_text(shim: Shim) -> None:
    shim.will_say("one two three four")
    usage = (await shim.chat(stop="three")).json()["usage"]
    assert usage["kakeya"] == {
        "history": usage["total_tokens"],
        "retained": 20,
        "evicted": usage["total_tokens"] - 20,
    }


async def test_the_longest_of_several_answers_says_what_is_seen(shim: Shim) -> None:
    shim.will_say("One.", "Twenty-two.")
    usage = (await shim.chat(n=2)).json()["usage"]
    assert usage["kakeya"]["history"] == usage["prompt_tokens"] + len("Twenty-two.") + 1
