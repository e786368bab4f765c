"""Single prompts of Ollama's API: written by the chat template, or raw."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.ollama_api.answer_lines import GenerateLine
from tests.unit.http_shim.ollama_api.asking import GENERATE, generate, lines, put_together
from tests.unit.http_shim.shim import MODEL, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
async def live(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on", "--default-max-tokens", "30") as shim:
        yield shim


def written(shim: Shim) -> str:
    """What the model was told."""
    return shim.tokenizer.decode(list(shim.runtime.requests["AppendTokens"][-1].token_ids), special_tokens=True)


async def test_whole_and_streamed(live: Shim) -> None:
    live.will_say("Yes.", "Yes.")
    whole = (await generate(live)).json()
    GenerateLine.model_validate(whole, strict=True)
    assert (whole["response"], whole["done_reason"], whole["eval_count"]) == ("Yes.", "stop", 5)
    assert written(live) == "<|im_start|>user\nOnce<|im_end|>\n<|im_start|>assistant\n"
    told = await lines(live, GENERATE)
    for line in told:
        GenerateLine.model_validate(line, strict=True)
    streamed = put_together(told)
    assert (streamed["response"], streamed["eval_count"]) == ("Yes.", 5)
    await live.nothing_left()


async def test_with_instructions(live: Shim) -> None:
    await generate(live, system="Be kind.", options={"num_predict": 1})
    assert written(live).startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nOnce")


async def test_raw(live: Shim) -> None:
    live.will_say(" upon", " upon")
    whole = (await generate(live, raw=True)).json()
    assert (whole["response"], written(live)) == (" upon", "Once")
    assert put_together(await lines(live, GENERATE, raw=True))["response"] == " upon"
    assert live.runtime.requests["Generate"][-1].max_tokens == 30


@pytest.mark.parametrize("fields", [{}, {"prompt": ""}, {"prompt": None, "keep_alive": 0}, {"raw": True, "prompt": ""}])
async def test_without_a_prompt_the_model_is_loaded(live: Shim, fields: dict[str, Any]) -> None:
    response = await live.http.post(GENERATE, json={"model": MODEL, **fields})
    answer = response.json()
    assert (answer["response"], answer["done"], answer["done_reason"]) == ("", True, "load")
    assert "Turn" not in live.runtime.calls


async def test_what_older_clients_send_empty(live: Shim) -> None:
    fields = {"suffix": "", "template": "", "system": "", "context": [], "images": []}
    assert (await generate(live, **fields, options={"num_predict": 1})).status_code == 200


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"suffix": "."}, "suffix: not supported: "),
        ({"template": "{{ .Prompt }}"}, "template: not supported: "),
        ({"context": [1, 2]}, "context: not supported: a conversation is sent whole, to /api/chat"),
        ({"images": ["aGVsbG8="]}, "images: not supported: "),
        ({"width": 100}, "width: not supported: "),
        ({"raw": True, "system": "Be kind."}, "system: not together with raw"),
        ({"raw": True, "think": True}, "think: not together with raw"),
        ({"raw": True, "logprobs": True}, "logprobs: not together with raw"),
        ({"prompt": 5}, "prompt: "),
        ({"raw": True, "format": "json", "kakeya": {"regex": "a"}}, "format: not together with kakeya.regex"),
        ({"messages": [{"role": "user", "content": "a"}]}, "unknown field messages"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(live: Shim, fields: dict[str, Any], message: str) -> None:
    response = await generate(live, **fields)
    assert response.status_code == 400
    assert response.json().keys() == {"error"}
    assert message in response.json()["error"]
