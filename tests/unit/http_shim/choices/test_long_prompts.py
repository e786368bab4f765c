"""Prompts that are longer than this server lets them be are refused before anything is begun."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.http_shim.shim import CHAT, COMPLETIONS, HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

LONGEST = 200
LONG = "a" * (LONGEST + 1)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}, "messages"),
        (CHAT, {"messages": [{"role": "system", "content": "a" * 1_100_000}, *HELLO]}, "messages"),
        (COMPLETIONS, {"prompt": LONG}, "prompt"),
        (COMPLETIONS, {"prompt": ["a", LONG]}, "prompt"),
        (COMPLETIONS, {"prompt": [1] * (LONGEST + 1)}, "prompt"),
        (COMPLETIONS, {"prompt": [[1], [1] * (LONGEST + 1)]}, "prompt"),
    ],
)
async def test_a_prompt_that_is_too_long(
    runtime: ScriptedRuntime, tokenizer_dir: Path, path: str, fields: dict[str, Any], param: str
) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--max-prompt-tokens", str(LONGEST)) as shim:
        response = await shim.http.post(path, json=fields)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", param)
        assert "200 tokens that this server allows (--max-prompt-tokens)" in error["message"]
        fitting = await shim.http.post(COMPLETIONS, json={"prompt": "a" * LONGEST, "max_tokens": 1})
        assert fitting.status_code == 200, fitting.text
        await shim.nothing_left()
    assert len(runtime.requests["CreateSession"]) == 1


async def test_the_limit_by_default(shim: Shim) -> None:
    response = await shim.complete(prompt=[1] * 131_073)
    assert response.json()["error"]["code"] == "context_length_exceeded"
