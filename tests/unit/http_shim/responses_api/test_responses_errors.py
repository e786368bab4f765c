"""What Responses refuse, each by its name."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.http_shim.responses_api.asking import RESPONSES, ask, user
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
UNSUPPORTED, INVALID = "unsupported_parameter", "invalid_value"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"background": True}, "background", UNSUPPORTED),
        ({"background": 1}, "background", INVALID),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "previous_response_id", INVALID),
        ({"conversation": {"id": "conv_1", "metadata": {}}}, "conversation.metadata", "unknown_parameter"),
        ({"conversation": 1}, "conversation", INVALID),
        ({"context_management": [{"type": "summary"}]}, "context_management[0].type", INVALID),
        ({"context_management": [{"type": "compaction"}] * 2}, "context_management", INVALID),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", UNSUPPORTED),
        ({"include": ["message.output_text.logprobs"]}, "include[0]", UNSUPPORTED),
        ({"top_logprobs": 2}, "top_logprobs", UNSUPPORTED),
        ({"max_tokens": 2}, "max_tokens", UNSUPPORTED),
        ({"text": {"verbosity": "low"}}, "text.verbosity", UNSUPPORTED),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type", INVALID),
        ({"service_tier": "flex"}, "service_tier", UNSUPPORTED),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options", INVALID),
        ({"nonsense": 1}, "nonsense", "unknown_parameter"),
        ({"ignore_eos": 1}, "ignore_eos", INVALID),
        ({"ignore_eos": True, "text": {"format": {"type": "json_object"}}}, "ignore_eos", INVALID),
        ({"logit_bias": {"5": 101}}, "logit_bias.5", INVALID),
        ({"logit_bias": {"4000000000": 1}}, "logit_bias", INVALID),
        ({"input": 1}, "input", INVALID),
        ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role", INVALID),
        ({"input": [{"type": "message", "content": "a"}]}, "input[0].role", INVALID),
        ({"input": [1]}, "input[0].role", INVALID),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, "input[0].content[0].type", UNSUPPORTED),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type", UNSUPPORTED),
        ({"input": [{"type": "compaction_trigger"}]}, "input[0].type", UNSUPPORTED),
        ({"input": [{"type": "web_search_call", "id": "a"}]}, "input[0].type", UNSUPPORTED),
        ({"input": [{"type": "local_shell_call", "id": "a"}]}, "input[0].type", UNSUPPORTED),
        ({"input": [user("a")], "temperature": 3}, "temperature", INVALID),
        (
            {"text": {"format": {"type": "json_object"}}, "kakeya": {"regex": "a"}},
            "text",
            INVALID,
        ),
    ],
)
async def test_what_is_refused(shim: Shim, fields: dict[str, Any], param: str, code: str) -> None:
    response = await ask(shim, **fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code)
    assert error.keys() == {"message", "type", "param", "code"}


async def test_an_image_in_a_result_of_a_function(shim: Shim) -> None:
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "1", "output": [IMAGE]}
    error = (await ask(shim, input=[user("Hello"), call, result])).json()["error"]
    assert (error["param"], error["code"]) == ("input[2].output[0].type", UNSUPPORTED)


async def test_fields_have_the_names_of_this_api(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--max-prompt-tokens", "4") as shim:
        error = (await ask(shim)).json()["error"]
        assert (error["param"], error["code"]) == ("input", "context_length_exceeded")


async def test_a_form_that_cannot_be_held_to_is_named(shim: Shim) -> None:
    shim.runtime.before["Generate"].append(fails("INVALID_FIELD", field="grammar.json_schema"))
    form = {"type": "json_schema", "name": "a", "schema": {"type": "nonsense"}}
    error = (await ask(shim, text={"format": form})).json()["error"]
    assert error["param"] == "text.format"


async def test_a_model_that_is_not_there(shim: Shim) -> None:
    response = await ask(shim, model="gpt-9")
    assert (response.status_code, response.json()["error"]["param"]) == (404, "model")


async def test_the_method(shim: Shim) -> None:
    response = await shim.http.get(RESPONSES)
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")


async def test_a_template_that_refuses_the_conversation(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=True)
    (tmp_path / "chat_template.jinja").write_text(
        tiny_tokenizer.TEMPLATE + "{% if messages | length > 2 %}{{ raise_exception('too many') }}{% endif %}"
    )
    async with serving_shim(runtime, tmp_path) as shim:
        error = (await ask(shim, input=[user("a"), {"role": "assistant", "content": "b"}, user("c")])).json()["error"]
        assert (error["param"], "too many" in error["message"]) == ("input", True)


async def test_a_conversation_without_tokens(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=True)
    (tmp_path / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message['content'] if message['content'] != 'silence' else '' }}{% endfor %}"
    )
    async with serving_shim(runtime, tmp_path) as shim:
        error = (await ask(shim, input="silence")).json()["error"]
        assert (error["param"], error["message"]) == ("input", "input: no tokens to go on from")
