"""Blocks of what a model thinks."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.http_shim.messages_api.asking import ask, count, events, put_together
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

TEMPLATE = tiny_tokenizer.TEMPLATE + (
    "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
    "<think></think>{% endif %}{# what is thought of #}"
)
THINKS = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture
async def thinker(runtime: ScriptedRuntime, tmp_path: Path) -> AsyncIterator[Shim]:
    """Its model thinks unless it is told not to."""
    tiny_tokenizer.save(tmp_path, template=True)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on") as shim:
        yield shim


async def test_thoughts_come_before_the_text(thinker: Shim) -> None:
    thinker.will_say("<think>hm</think>Yes.", "<think>hm</think>Yes.")
    whole = (await ask(thinker, thinking=THINKS)).json()
    thought, text = whole["content"]
    assert (thought["type"], thought["thinking"], text) == ("thinking", "hm", {"type": "text", "text": "Yes."})
    assert thought["signature"]
    told = await events(thinker, messages=[{"role": "user", "content": "Hello!"}], thinking=THINKS)
    kinds = [event["delta"]["type"] for event in told if event["type"] == "content_block_delta"]
    assert kinds == [*["thinking_delta"] * 2, "signature_delta", *["text_delta"] * 4]
    assert put_together(told)["content"] == whole["content"]


async def test_thoughts_without_their_text(thinker: Shim) -> None:
    thinker.will_say("<think>hm</think>Yes.", "<think>hm</think>Yes.")
    fields: dict[str, Any] = {"thinking": {"type": "adaptive", "display": "omitted"}}
    whole = (await ask(thinker, **fields)).json()
    assert (whole["content"][0]["thinking"], whole["content"][1]["text"]) == ("", "Yes.")
    streamed = put_together(await events(thinker, **fields))
    assert streamed["content"] == whole["content"]


async def test_an_answer_that_is_cut_within_its_thoughts(thinker: Shim) -> None:
    thinker.will_say("<think>hm, hm", "<think>hm, hm", ends=False)
    whole = (await ask(thinker, thinking=THINKS, max_tokens=12)).json()
    assert ([block["thinking"] for block in whole["content"]], whole["stop_reason"]) == (["hm, h"], "max_tokens")
    streamed = put_together(await events(thinker, thinking=THINKS, max_tokens=12))
    assert streamed["content"] == whole["content"]


async def test_a_model_that_is_not_asked_to_think_is_told_not_to(thinker: Shim) -> None:
    asked = await count(thinker, thinking=THINKS)
    for thinking in (None, {"type": "disabled"}):
        assert await count(thinker, thinking=thinking) == asked + len("<think></think>")
        thinker.will_say("Yes.")
        answer = (await ask(thinker, thinking=thinking)).json()
        assert answer["content"] == [{"type": "text", "text": "Yes."}]


async def test_thoughts_come_back_with_any_signature(thinker: Shim) -> None:
    thinker.will_say("<think>hm</think>Yes.", "<think>well</think>No.")
    first = await ask(thinker, thinking=THINKS)
    said = first.json()["content"]
    said[0]["signature"] = "another one"
    hidden = {"type": "redacted_thinking", "data": "c2VjcmV0"}
    messages = [*HELLO, {"role": "assistant", "content": [hidden, *said]}, {"role": "user", "content": "And?"}]
    second = await ask(thinker, messages=messages, thinking=THINKS)
    assert second.headers["kakeya-session"].startswith("continued; ")
    assert second.headers["kakeya-session"].endswith("why=next-turn")
