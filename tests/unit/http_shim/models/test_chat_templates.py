"""What clients say is given to a chat template in its own form, and is lost in none."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from kakeya_http_shim.command import main
from tests.unit.http_shim.shim import HELLO
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.chat_templates import ADDS_UP, SERVED, TOOLS
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

Folder = Callable[[str], Path]
"""Of a tokenizer with this chat template."""

LLAVA = SERVED["parts (Llava)"].source


@pytest.fixture
def folder(tokenizer_dir: Path, tmp_path: Path) -> Folder:
    def folder(template: str) -> Path:
        shutil.copytree(tokenizer_dir, tmp_path, dirs_exist_ok=True)
        (tmp_path / "chat_template.jinja").write_text(template)
        return tmp_path

    return folder


def _text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _transformers(folder: Path, messages: list[dict[str, Any]]) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return ids


async def test_a_template_that_walks_parts(runtime: ScriptedRuntime, folder: Folder) -> None:
    llava = folder(LLAVA)
    call: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    async with serving_shim(runtime, llava) as shim:
        shim.will_say("Hi!")
        messages = [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}, *_text("Yes.")]},
            {"role": "user", "content": _text("Wh", "y?")},
            {"role": "assistant", "refusal": "No."},
            {"role": "user", "content": "Add!"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "4", "tool_call_id": "1"},
        ]
        answer = (await shim.chat(messages=messages)).json()
    said = [
        ("system", _text("Be kind.")),
        ("user", _text("Hello")),
        ("assistant", _text("No.", "Yes.")),
        ("user", _text("Wh", "y?")),
        ("assistant", _text("No.")),
        ("user", _text("Add!")),
        ("assistant", []),
        ("tool", _text("4")),
    ]
    prompt = _transformers(llava, [{"role": role, "content": content} for role, content in said])
    assert list(runtime.requests["AppendTokens"][0].token_ids) == prompt
    assert answer["usage"]["prompt_tokens"] == len(prompt)
    assert runtime.requests["CreateSession"][0].pin == len(shim.tokens("system: Be kind. ;\n"))


@pytest.mark.parametrize("template", [*TOOLS.values(), ADDS_UP])
async def test_calls_of_tools_in_a_history(runtime: ScriptedRuntime, folder: Folder, template: str) -> None:
    with_tools = folder(template)
    arguments = '{"city": "Z\\u00fcrich", "days": 3}'
    function: dict[str, Any] = {"name": "weather", "arguments": arguments}
    call = {"id": "abcdef123", "type": "function", "function": function}
    async with serving_shim(runtime, with_tools) as shim:
        shim.will_say("Hi!")
        history: list[dict[str, Any]] = [*HELLO, {"role": "assistant", "tool_calls": [call]}]
        assert (await shim.chat(messages=history)).status_code == 200
    takes_parts = template == TOOLS["parts and tojson"]
    history = [*HELLO, {"role": "assistant", "content": [] if takes_parts else "", "tool_calls": [call]}]
    if takes_parts:
        history[0] = {"role": "user", "content": _text("Hello")}
    if template != ADDS_UP:
        function["arguments"] = json.loads(arguments)
    assert list(runtime.requests["AppendTokens"][0].token_ids) == _transformers(with_tools, history)


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("raise_exception('a secret of the inside')", 400),
        ("1 + ''", 500),
        ("a_secret.of.the_inside", 500),
        ("messages[0].content.index('a secret of the inside')", 500),
        ("again()", 500),
    ],
)
async def test_only_what_a_template_refuses_on_purpose_is_the_clients_fault(
    runtime: ScriptedRuntime, folder: Folder, condition: str, status: int
) -> None:
    picky = (
        "{% macro again() %}{{ again() }}{% endmacro %}"
        "{% if 'now' in messages[0].content %}{{ " + condition + " }}{% endif %}" + tiny_tokenizer.TEMPLATE
    )
    async with serving_shim(runtime, folder(picky)) as shim:
        shim.will_say("Hi!")
        assert (await shim.chat()).status_code == 200
        response = await shim.chat(messages=[{"role": "user", "content": "and now?"}])
    error = response.json()["error"]
    assert response.status_code == status, response.text
    if status == 400:
        assert (error["param"], error["code"]) == ("messages", "invalid_value")
        assert error["message"] == "the chat template refuses messages of user: a secret of the inside"
    else:
        assert (error["type"], error["code"]) == ("server_error", "internal_error")
        assert "secret" not in response.text


@pytest.mark.parametrize("template", ["{# nothing #}", "{{ nobody.knows }}", "{% if %}"])
def test_a_template_that_does_not_write_what_is_said(
    folder: Folder, template: str, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = folder(template)
    assert main(["--bind", "127.0.0.1:0", "--tokenizer", f"m={directory}"]) == 78
    last = capfd.readouterr().err.splitlines()[-1]
    assert f"the chat template of {directory} writes a user's message neither given as a text nor as parts" in last


async def test_a_template_that_leaves_out_system_messages(
    runtime: ScriptedRuntime, folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving_shim(runtime, folder(SERVED["no system"].source)) as shim:
        shim.will_say("Hi!")
        messages = [{"role": "system", "content": "Be kind."}, *HELLO]
        assert (await shim.chat(messages=messages)).status_code == 200
    assert list(runtime.requests["AppendTokens"][0].token_ids) == shim.tokens("Hello ;\nassistant: ")
    assert not runtime.requests["CreateSession"][0].HasField("pin")
    assert "the chat template leaves out system messages" in capsys.readouterr().out
