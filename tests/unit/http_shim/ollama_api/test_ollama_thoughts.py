"""Thoughts in Ollama's API, of a model that thinks unless it is told not to."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.http_shim.ollama_api.asking import GENERATE, ask, generate, lines, put_together
from tests.unit.http_shim.shim import MODEL, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

TEMPLATE = tiny_tokenizer.TEMPLATE + (
    "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
    "<think></think>{% endif %}"
    "{% if reasoning_effort is defined %}{{ reasoning_effort }}:{% endif %}{# of <think> #}"
)
PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
async def thinker(runtime: ScriptedRuntime, tmp_path: Path) -> AsyncIterator[Shim]:
    tiny_tokenizer.save(tmp_path, template=True)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    async with serving_shim(runtime, tmp_path) as shim:
        yield shim


async def test_they_are_told_apart(thinker: Shim) -> None:
    thinker.will_say("<think>hm</think>Yes.", "<think>hm</think>Yes.")
    whole = (await ask(thinker, think=True)).json()
    assert whole["message"] == {"role": "assistant", "content": "Yes.", "thinking": "hm"}
    assert put_together(await lines(thinker, think=True))["message"] == whole["message"]


async def test_they_are_told_apart_in_the_answer_to_a_prompt(thinker: Shim) -> None:
    thinker.will_say("<think>hm</think>Yes.", "<think>hm</think>Yes.")
    whole = (await generate(thinker)).json()
    assert (whole["response"], whole["thinking"]) == ("Yes.", "hm")
    streamed = put_together(await lines(thinker, GENERATE))
    assert (streamed["response"], streamed["thinking"]) == ("Yes.", "hm")


@pytest.mark.parametrize(
    ("think", "written"),
    [
        (None, PROMPT),
        (True, PROMPT),
        (False, f"{PROMPT}<think></think>"),
        ("low", f"{PROMPT}low:"),
        ("max", f"{PROMPT}high:"),
    ],
)
async def test_what_the_template_is_told(thinker: Shim, think: Any, written: str) -> None:
    await ask(thinker, think=think)
    given = list(thinker.runtime.requests["AppendTokens"][-1].token_ids)
    assert thinker.tokenizer.decode(given, special_tokens=True) == written


async def test_a_model_that_does_not_think(shim: Shim) -> None:
    for think in (True, "high"):
        for response in (await ask(shim, think=think), await generate(shim, think=think)):
            error = response.json()["error"]
            assert (response.status_code, error) == (400, f"think: '{MODEL}' does not support thinking")
    assert (await ask(shim, think=False)).status_code == 200
