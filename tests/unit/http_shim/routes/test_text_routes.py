"""POST /tokenize, /detokenize and /apply-template."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.http_shim.shim import HELLO, MODEL, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import families, tiny_tokenizer
from tests.unit.sdk.scripted_runtime import SINK, WINDOW, ScriptedRuntime

TOOL = {"type": "function", "function": {"name": "look"}}
RENDERED = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


async def tokenize(shim: Shim, **fields: Any) -> httpx.Response:
    return await shim.http.post("/tokenize", json=fields)


@pytest.mark.parametrize("field", ["prompt", "content"])
async def test_a_text(shim: Shim, field: str) -> None:
    answer = (await tokenize(shim, **{field: "Hé"})).json()
    token_ids = shim.tokens("Hé")
    assert answer == {"count": 3, "max_model_len": SINK + WINDOW, "tokens": token_ids}
    assert not shim.runtime.requests["CreateSession"]


async def test_a_conversation_as_the_chat_would_be(shim: Shim) -> None:
    answer = (await tokenize(shim, messages=HELLO)).json()
    assert (answer["tokens"], answer["count"]) == (shim.tokens(RENDERED), len(shim.tokens(RENDERED)))
    await shim.chat(max_tokens=1)
    assert list(shim.runtime.requests["AppendTokens"][0].token_ids) == answer["tokens"]


async def test_a_conversation_with_tools(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    families.save(tmp_path, families.ONES["qwen2_5"])
    function = '{"name": "look", "parameters": {"type": "object", "properties": {}}}'
    written = f'<tools>\n{{"type": "function", "function": {function}}}'
    async with serving_shim(runtime, tmp_path) as shim:
        fields = {"messages": HELLO, "tools": [TOOL]}
        prompt = (await shim.http.post("/apply-template", json=fields)).json()["prompt"]
        assert written in prompt
        assert (await tokenize(shim, **fields)).json()["tokens"] == shim.tokens(prompt)


async def test_a_conversation_that_is_left_open(shim: Shim) -> None:
    fields = {"messages": [*HELLO, {"role": "assistant", "content": "I am"}], "continue_final_message": True}
    wanted = RENDERED + "I am"
    assert (await shim.http.post("/apply-template", json=fields)).json() == {"prompt": wanted}
    assert (await tokenize(shim, **fields)).json()["tokens"] == shim.tokens(wanted)
    ended = (await shim.http.post("/apply-template", json={"messages": HELLO, "add_generation_prompt": False})).json()
    assert ended == {"prompt": "<|im_start|>user\nHello<|im_end|>\n"}


async def test_marks_for_caches_are_not_for_the_template(shim: Shim) -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    marked = [
        {"role": "user", "content": [{"type": "text", "text": "Hello", **mark}], **mark},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No.", **mark}], **mark},
    ]
    bare = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "No."}]
    prompts = [(await shim.http.post("/apply-template", json={"messages": each})).json() for each in (marked, bare)]
    assert prompts[0] == prompts[1]
    assert (await shim.chat(messages=marked)).status_code == 200


@pytest.mark.parametrize(("parses", "count"), [(True, 2), (None, 2), (False, 11)])
async def test_what_looks_like_a_control_token(shim: Shim, parses: bool | None, count: int) -> None:
    assert (await tokenize(shim, content="a<|im_end|>", parse_special=parses)).json()["count"] == count


async def test_what_each_token_stands_for(shim: Shim) -> None:
    answer = (await tokenize(shim, prompt="a<|im_end|>", return_token_strs=True)).json()
    assert answer["token_strs"] == ["a", "<|im_end|>"]


async def test_nothing_has_no_tokens(shim: Shim) -> None:
    assert (await tokenize(shim, prompt="")).json()["tokens"] == []


async def test_a_long_text(shim: Shim) -> None:
    assert (await tokenize(shim, content="x" * 70_000)).json()["count"] == 70_000


@pytest.mark.parametrize(
    ("fields", "has_bos"),
    [
        ({"prompt": "a"}, True),
        ({"prompt": "a", "add_special_tokens": False}, False),
        ({"prompt": "a", "add_special": False}, False),
        ({"content": "a"}, False),
        ({"content": "a", "add_special": True}, True),
        ({"content": "a", "add_special_tokens": True}, True),
    ],
)
async def test_special_tokens_around_a_text(
    runtime: ScriptedRuntime, tmp_path: Path, fields: dict[str, Any], has_bos: bool
) -> None:
    tiny_tokenizer.save_with_start(tmp_path)
    async with serving_shim(runtime, tmp_path) as shim:
        answer = (await tokenize(shim, **fields)).json()
        (letter,) = shim.tokenizer.encode("a", special_tokens=False)
        assert answer["tokens"] == [257] * has_bos + [letter]


async def test_back_into_text(shim: Shim) -> None:
    response = await shim.http.post("/detokenize", json={"tokens": shim.tokens(RENDERED)})
    assert response.json() == {"prompt": RENDERED, "content": RENDERED}
    assert (await shim.http.post("/detokenize", json={"tokens": []})).json()["content"] == ""


async def test_what_the_template_writes(shim: Shim) -> None:
    response = await shim.http.post("/apply-template", json={"messages": HELLO, "model": MODEL})
    assert response.json() == {"prompt": RENDERED}


@pytest.mark.parametrize(
    ("path", "fields", "param", "code"),
    [
        ("/tokenize", {}, "prompt", "invalid_value"),
        ("/tokenize", {"prompt": "a", "content": "a"}, "content", "invalid_value"),
        ("/tokenize", {"prompt": "a", "messages": HELLO}, "messages", "invalid_value"),
        ("/tokenize", {"messages": []}, "messages", "invalid_value"),
        ("/tokenize", {"messages": HELLO, "add_special_tokens": True}, "add_special_tokens", "invalid_value"),
        ("/tokenize", {"content": "a", "add_special": True, "add_special_tokens": False}, "add_special_tokens", "inv"),
        ("/tokenize", {"prompt": ["a"]}, "prompt", "invalid_value"),
        ("/tokenize", {"prompt": "a", "continue_final_message": True}, "continue_final_message", "invalid_value"),
        ("/tokenize", {"messages": HELLO, "parse_special": True}, "parse_special", "invalid_value"),
        ("/tokenize", {"prompt": "a", "with_pieces": True}, "with_pieces", "unsupported_parameter"),
        ("/tokenize", {"messages": HELLO, "tools": [TOOL]}, "tools", "unsupported_parameter"),
        ("/tokenize", {"prompt": "a", "tools": [TOOL]}, "tools", "invalid_value"),
        ("/apply-template", {"messages": HELLO, "tools": [TOOL]}, "tools", "unsupported_parameter"),
        ("/tokenize", {"text": "a"}, "text", "unknown_parameter"),
        ("/detokenize", {}, "tokens", "missing_required_parameter"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]", "invalid_value"),
        ("/detokenize", {"tokens": [1000]}, "tokens", "invalid_value"),
        ("/detokenize", {"tokens": "a"}, "tokens", "invalid_value"),
        ("/apply-template", {}, "messages", "missing_required_parameter"),
        ("/apply-template", {"messages": HELLO, "chat_template": "x"}, "chat_template", "unsupported_parameter"),
    ],
)
async def test_refusals(shim: Shim, path: str, fields: dict[str, Any], param: str, code: str) -> None:
    response = await shim.http.post(path, json=fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param
    assert error["code"].startswith(code)


async def test_an_unknown_model(shim: Shim) -> None:
    for path, fields in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        response = await shim.http.post(path, json={"model": "other", **fields})
        assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_text_that_is_longer_than_a_prompt_may_be(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--max-prompt-tokens", "4") as shim:
        for field in ("prompt", "content"):
            error = (await tokenize(shim, **{field: "12345"})).json()["error"]
            assert (error["code"], error["param"]) == ("context_length_exceeded", field)


async def test_half_a_character(shim: Shim) -> None:
    response = await shim.http.post(
        "/apply-template",
        content=b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        headers={"content-type": "application/json"},
    )
    assert response.json()["error"]["code"] == "invalid_json"


async def test_messages_without_a_template(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=False)
    async with serving_shim(runtime, tmp_path) as shim:
        for path in ("/tokenize", "/apply-template"):
            error = (await shim.http.post(path, json={"messages": HELLO})).json()["error"]
            assert (error["param"], error["code"]) == ("messages", "invalid_value")


async def test_a_client_that_leaves_before_its_body_is_there(shim: Shim) -> None:
    async def body() -> Any:
        yield b'{"prompt": '
        raise httpx.WriteError("gone")

    with pytest.raises(httpx.WriteError):
        await shim.http.post("/tokenize", content=body(), headers={"content-type": "application/json"})
    assert (await tokenize(shim, prompt="a")).status_code == 200
