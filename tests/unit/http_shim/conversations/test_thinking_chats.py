"""Chats with a model that thinks before it answers: its thoughts stay in its session."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Talk
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

INSIDE = "{% if add_generation_prompt and thinks %}<think>{% endif %}{# and </think> #}"


@pytest.fixture
async def thinker(runtime: ScriptedRuntime, tmp_path: Path) -> AsyncIterator[Shim]:
    tiny_tokenizer.save(tmp_path, template=True)
    (tmp_path / "chat_template.jinja").write_text(tiny_tokenizer.TEMPLATE + INSIDE)
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on") as shim:
        yield shim


@pytest.mark.parametrize("is_inside", [True, False])
async def test_thoughts_stay(thinker: Shim, is_inside: bool) -> None:
    talk = Talk(thinker)
    how: dict[str, Any] = {"chat_template_kwargs": {"thinks": is_inside}}
    opening = "" if is_inside else "<think>"
    first = await talk.says("Hello", f"{opening}hm</think>Yes.", **how)
    assert talk.messages[-1]["content"] == "Yes."
    told = await talk.says("And?", f"{opening}well</think>No.", **how)
    assert told.short == ("continued", "next-turn")
    assert told.id == first.id
    assert "<think>hm</think>Yes.<|im_end|>\n<|im_start|>user\nAnd?" in talk.history(told)


async def test_another_beginning_of_an_answer_is_another_place(thinker: Shim) -> None:
    """Where the client changes its mind about thoughts, the answer does not begin where they were begun."""
    talk = Talk(thinker)
    await talk.says("Hello", "hm</think>Yes.", chat_template_kwargs={"thinks": True})
    del talk.messages[-1]
    told = await talk.asks("Yes.", chat_template_kwargs={"thinks": False})
    assert told.short == ("new", "first-turn")
    again = await talk.asks("No.", chat_template_kwargs={"thinks": False})
    assert again.state == "continued"


@pytest.mark.parametrize("is_inside", [True, False])
async def test_an_answer_that_is_cut_within_its_thoughts(thinker: Shim, is_inside: bool) -> None:
    talk = Talk(thinker)
    how: dict[str, Any] = {"chat_template_kwargs": {"thinks": is_inside}}
    first = await talk.says("Hello", "hm, hm" if is_inside else "<think>hm, hm", ends=False, max_tokens=12, **how)
    assert talk.messages[-1]["content"] == ""
    told = await talk.says("And?", "</think>No." if is_inside else "No.", **how)
    assert "hm" not in talk.history(told)
    # What the client sends of it lacks the thoughts that were begun before it.
    assert told.short == (("new", "not-found") if is_inside else ("continued", "cut-answer"))
    assert (told.id == first.id) == (not is_inside)


async def test_regenerating_goes_on_in_the_thoughts(thinker: Shim) -> None:
    talk = Talk(thinker)
    how: dict[str, Any] = {"chat_template_kwargs": {"thinks": True}}
    await talk.says("Hello", "hm</think>Yes.", **how)
    del talk.messages[-1]
    told = await talk.asks("well</think>No.", **how)
    assert told.short == ("forked", "regenerated")
    assert talk.messages[-1]["content"] == "No."


async def test_thoughts_that_are_a_part_of_the_content(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    """As pydantic-ai sends them back where they are not told apart."""
    tiny_tokenizer.save(tmp_path, template=True)
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on", "--reasoning", "off") as shim:
        talk = Talk(shim)
        first = await talk.says("Hello", "<think>hm</think>\n\nYes.")
        talk.messages[-1]["content"] = "<think>\nhm\n</think>\n\n\n\nYes."
        told = await talk.says("And?", "No.")
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
        assert "<think>hm</think>\n\nYes.<|im_end|>\n<|im_start|>user\nAnd?" in talk.history(told)
