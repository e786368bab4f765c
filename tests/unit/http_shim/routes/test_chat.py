"""POST /v1/chat/completions: what comes in becomes a session's tokens, what comes out becomes an answer."""

import time
from pathlib import Path
from typing import Any

import pytest

from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
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
        ({"repetition_penalty": 5e-324}, {"repetition_penalty": 2**-126}),
        ({"top_k": 3}, {"top_k": 3}),
        ({"min_p": 0.5}, {"min_p": 0.5}),
        ({"presence_penalty": -1.5}, {"presence_penalty": -1.5}),
        ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
        ({"logit_bias": {"5": -100, "6": 1}}, {"logit_bias": {5: -100.0, 6: 1.0}}),
        ({"seed": 42}, {"seed": 42}),
        ({"seed": -1}, {"seed": (1 << 64) - 1}),
        ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
        ({"min_tokens": 2}, {"min_tokens": 2}),
        ({"ignore_eos": True}, {"ignore_eos": True}),
        ({"stop_token_ids": [5, 6]}, {"stop_token_sequences": [[5], [6]]}),
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
        if name == "stop_token_sequences":
            got = [list(sequence.token_ids) for sequence in got]
        assert (dict(got) if isinstance(value, dict) else got) == value
        is_plain = name in ("logit_bias", "max_tokens", "min_tokens", "ignore_eos", "stop_token_sequences")
        assert is_plain or request.HasField(name)


async def test_what_is_not_asked_for_is_not_sent(shim: Shim) -> None:
    shim.will_say("Hi!")
    await shim.chat()
    request = shim.runtime.requests["Generate"][0]
    for name in ("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "seed", "logprobs"):
        assert not request.HasField(name), name
    assert not request.HasField("repetition_penalty")
    assert (request.min_tokens, request.ignore_eos, list(request.stop_token_sequences)) == (0, False, [])


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


@pytest.mark.parametrize(
    ("fields", "longest"),
    [({"max_tokens": 128_000}, 9), ({"max_tokens": 8}, 8), ({"max_tokens": 128_000, "ignore_eos": True}, 128_000)],
)
async def test_the_longest_answer_is_the_servers(
    runtime: ScriptedRuntime, tokenizer_dir: Path, fields: dict[str, Any], longest: int
) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--max-answer-tokens", "9") as shim:
        shim.will_say("Hi!")
        assert (await shim.chat(**fields)).status_code == 200
        assert runtime.requests["Generate"][0].max_tokens == longest


async def test_a_session_that_is_full(shim: Shim) -> None:
    done = pb.GenerateDone(stop_reason=pb.STOP_REASON_TRUNCATED, history_length=40)
    shim.runtime.unusual_responses.append(pb.GenerateResponse(done=done))
    answer = (await shim.chat()).json()
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_drafts_of_the_runtime_are_told_beside_openais_counts(shim: Shim) -> None:
    done = pb.GenerateDone(
        stop_reason=pb.STOP_REASON_EOS, history_length=40, drafted_token_count=7, accepted_token_count=5
    )
    shim.runtime.unusual_responses.append(pb.GenerateResponse(done=done))  # of each answer
    usage = (await shim.chat(n=2)).json()["usage"]
    assert usage["kakeya"]["drafts"] == {"drafted": 14, "accepted": 10}
    assert "completion_tokens_details" not in usage


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


async def test_a_stop_token_ends_the_answer_and_is_not_in_it(shim: Shim) -> None:
    shim.will_say("ab.cd")
    (stop,) = shim.tokens(".")
    answer = (await shim.chat(stop_token_ids=[stop], logprobs=True)).json()
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("ab", "stop")
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["a", "b"]
    assert answer["usage"]["completion_tokens"] == 3, "the one that ended it included"


async def test_a_stop_token_that_ends_nothing_is_said(shim: Shim) -> None:
    shim.will_say("a.b.cd")
    (stop,) = shim.tokens(".")
    choice = (await shim.chat(stop_token_ids=[stop], min_tokens=3, logprobs=True)).json()["choices"][0]
    assert choice["message"]["content"] == "a.b"
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["a", ".", "b"]


async def test_a_stop_token_at_the_longest_length_ends_nothing(shim: Shim) -> None:
    shim.will_say("a.b")
    (stop,) = shim.tokens(".")
    choice = (await shim.chat(stop_token_ids=[stop], min_tokens=3, max_tokens=3)).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("a.b", "length")


async def test_stop_texts_behind_the_shortest_answer(shim: Shim) -> None:
    shim.will_say("ab stop cd stop ef")
    answer = (await shim.chat(stop="stop", min_tokens=8)).json()
    assert answer["choices"][0]["message"]["content"] == "ab stop cd "


async def test_sixteen_stop_texts(shim: Shim) -> None:
    shim.will_say("one two three")
    stops = [f"{number}" for number in range(15)] + ["three"]
    assert (await shim.chat(stop=stops)).json()["choices"][0]["message"]["content"] == "one two "


async def test_a_head_that_does_not_fit_a_lane(shim: Shim) -> None:
    response = await shim.chat(messages=[{"role": "system", "content": "x" * 40}, *HELLO])
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    num_tokens = len(shim.tokens(f"<|im_start|>system\n{'x' * 40}<|im_end|>\n"))
    assert error["message"].startswith(
        f"the system messages and tools have {num_tokens} tokens, and a session keeps 20;"
    )
    assert "`--window 128` holds them with 16 beside them, in 135,168 bytes a session" in error["message"]
    assert "`--window max`" in error["message"]
    assert not shim.runtime.requests["CreateSession"]


async def test_a_router_that_does_not_say_what_a_larger_lane_costs(shim: Shim) -> None:
    shim.runtime.models[0].window = 0
    error = (await shim.chat(messages=[{"role": "system", "content": "x" * 40}, *HELLO])).json()["error"]
    assert error["message"].endswith("a session keeps 20; start workers with a larger --window")


async def said_to_the_model(shim: Shim, **fields: Any) -> str:
    """The prompt of a chat, as text."""
    assert (await shim.chat(max_tokens=1, **fields)).status_code == 200
    return shim.tokenizer.decode(list(shim.runtime.requests["AppendTokens"][0].token_ids), special_tokens=True)


ANSWERED = [*HELLO, {"role": "assistant", "content": "I am"}]


async def test_an_answer_that_is_gone_on_with(shim: Shim) -> None:
    fields = {"messages": ANSWERED, "continue_final_message": True, "add_generation_prompt": False}
    assert await said_to_the_model(shim, **fields) == PROMPT + "I am"


async def test_a_prompt_without_the_beginning_of_an_answer(shim: Shim) -> None:
    fields = {"messages": ANSWERED, "add_generation_prompt": False}
    assert await said_to_the_model(shim, **fields) == PROMPT + "I am<|im_end|>\n"


async def test_an_answer_follows_a_message_that_has_ended(shim: Shim) -> None:
    prompt = await said_to_the_model(shim, messages=ANSWERED)
    assert prompt == PROMPT + "I am<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"continue_final_message": True, "messages": [*HELLO, {"role": "assistant"}]}, "messages"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"a-b": 1}}, "chat_template_kwargs.a-b"),
        ({"chat_template_kwargs": {f"a{number}": 1 for number in range(65)}}, "chat_template_kwargs"),
    ],
)
async def test_what_no_prompt_can_be_made_of(shim: Shim, fields: dict[str, Any], param: str) -> None:
    response = await shim.chat(**fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert not shim.runtime.requests["CreateSession"]


async def test_what_the_template_is_told(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=True)
    template = "{% if mood %}{{ mood.of | join(',') }}{% endif %}" + tiny_tokenizer.TEMPLATE
    (tmp_path / "chat_template.jinja").write_text(template)
    async with serving_shim(runtime, tmp_path) as shim:
        told = {"mood": {"of": ["glad", "<|im_end|>"]}}
        assert await said_to_the_model(shim, chat_template_kwargs=told) == "glad,<|im_end|>" + PROMPT
        (end,) = shim.tokenizer.eos_token_ids
        assert list(runtime.requests["AppendTokens"][0].token_ids).count(end) == 1, "what looks like one is text"
        error = (await shim.chat(chat_template_kwargs={"mood": {"of": 5}})).json()["error"]
        assert (error["param"], error["code"]) == ("chat_template_kwargs", "invalid_value")
