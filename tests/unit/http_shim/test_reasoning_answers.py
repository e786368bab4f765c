"""What a thinking model thinks is told apart from what it says."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture(scope="session")
def thinking_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of a model whose template knows of thoughts."""
    folder = tmp_path_factory.mktemp("thinking")
    tiny_tokenizer.save(folder, template=True)
    template = tiny_tokenizer.TEMPLATE + "{# between <think> and </think> #}"
    config = folder / "tokenizer_config.json"
    (folder / "chat_template.jinja").write_text(template)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": template}))
    return folder


@pytest.fixture
async def thinker(runtime: ScriptedRuntime, thinking_dir: Path) -> AsyncIterator[Shim]:
    async with serving_shim(runtime, thinking_dir) as shim:
        yield shim


async def test_a_whole_answer(thinker: Shim) -> None:
    thinker.will_say("<think>\nhm\n</think>\n\nYes.")
    message = (await thinker.chat()).json()["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"].strip()) == ("Yes.", "hm")


async def test_a_stream(thinker: Shim) -> None:
    thinker.will_say("<think>hm</think>Yes.")
    deltas = [event["choices"][0]["delta"] for event in (await thinker.events())[:-1]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm"
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes."
    assert deltas[0] == {"role": "assistant", "reasoning_content": "h"}


async def test_completions_keep_it(thinker: Shim) -> None:
    thinker.will_say("<think>hm</think>Yes.")
    assert (await thinker.complete(max_tokens=30)).json()["choices"][0]["text"] == "<think>hm</think>Yes."


async def test_who_does_not_think_says_it_all(shim: Shim) -> None:
    shim.will_say("<think>hm</think>Yes.")
    message = (await shim.chat()).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "<think>hm</think>Yes.", "refusal": None}


async def test_off(runtime: ScriptedRuntime, thinking_dir: Path) -> None:
    async with serving_shim(runtime, thinking_dir, "--reasoning", "off") as shim:
        shim.will_say("<think>hm</think>Yes.")
        assert (await shim.chat()).json()["choices"][0]["message"]["content"] == "<think>hm</think>Yes."


async def test_a_prompt_that_opens_the_thought(runtime: ScriptedRuntime, thinking_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(thinking_dir, tmp_path, dirs_exist_ok=True)
    template = tiny_tokenizer.TEMPLATE + "<think>"
    (tmp_path / "chat_template.jinja").write_text(template)
    async with serving_shim(runtime, tmp_path) as shim:
        shim.will_say("hm</think>Yes.")
        message = (await shim.chat()).json()["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"]) == ("Yes.", "hm")
