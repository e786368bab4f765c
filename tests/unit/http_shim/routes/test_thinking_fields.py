"""What chat templates are told of thinking, and how long a thought may be."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from tests.unit.http_shim.messages_api.asking import ask
from tests.unit.http_shim.shim import CHAT, HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
SWITCH = "{% if enable_thinking is defined %}[{{ enable_thinking }}]{% endif %}"
EFFORT = "{% if reasoning_effort is defined %}({{ reasoning_effort }}){% endif %}"
MAX_TOKENS = {"max_tokens": 1}


async def written(shim: Shim, **fields: Any) -> str:
    """What the model is told behind the beginning of its answer."""
    response = await shim.chat(**MAX_TOKENS, **fields)
    assert response.status_code == 200, response.text
    return last_prompt(shim)


def last_prompt(shim: Shim) -> str:
    given = list(shim.runtime.requests["AppendTokens"][-1].token_ids)
    text = shim.tokenizer.decode(given, special_tokens=True)
    assert text.startswith(PROMPT)
    return text.removeprefix(PROMPT)


def save(folder: Path, template: str) -> Path:
    tiny_tokenizer.save(folder, template=True)
    (folder / "chat_template.jinja").write_text(tiny_tokenizer.TEMPLATE + template)
    return folder


@pytest.mark.parametrize(
    ("fields", "both", "switch", "effort"),
    [
        ({}, "", "", ""),
        ({"reasoning_effort": None, "enable_thinking": None}, "", "", ""),
        ({"reasoning_effort": "low"}, "[True](low)", "[True]", "(low)"),
        ({"reasoning_effort": "none"}, "[False](none)", "[False]", "(none)"),
        ({"enable_thinking": True}, "[True]", "[True]", ""),
        ({"enable_thinking": False, "reasoning_effort": "high"}, "[False](high)", "[False]", "(high)"),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
            "[False](low)",
            "[False]",
            "[False](low)"[7:],
        ),
    ],
)
async def test_a_template_is_told_what_it_knows(
    runtime: ScriptedRuntime, tmp_path: Path, fields: dict[str, Any], both: str, switch: str, effort: str
) -> None:
    for number, (template, told) in enumerate(((SWITCH + EFFORT, both), (SWITCH, switch), (EFFORT, effort), ("", ""))):
        async with serving_shim(runtime, save(tmp_path / str(number), template)) as shim:
            assert await written(shim, **fields) == told
            await shim.nothing_left()


@pytest.mark.parametrize("effort", ["maximal", "", True])
async def test_an_effort_that_is_none(shim: Shim, effort: Any) -> None:
    response = await shim.chat(reasoning_effort=effort)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "reasoning_effort")


@pytest.mark.parametrize("name", ["reasoning", "thinking_token_budget", "thinking_budget_tokens"])
async def test_other_names_are_refused_with_ours(shim: Shim, name: str) -> None:
    error = (await shim.chat(**{name: {"effort": "low"}})).json()["error"]
    assert (error["param"], error["code"]) == (name, "unsupported_parameter")
    assert "its name here" in error["message"]


async def test_what_a_template_does_not_know_makes_no_other_conversation(
    runtime: ScriptedRuntime, tokenizer_dir: Path
) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        shim.will_say("Yes.", "No.")
        first = Told.by(await shim.chat(max_tokens=50, reasoning_effort="low"))
        messages = [*HELLO, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}]
        told = Told.by(await shim.http.post(CHAT, json={"messages": messages, "enable_thinking": True}))
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)


async def test_messages_tell_an_effort(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    async with serving_shim(runtime, save(tmp_path, SWITCH + EFFORT)) as shim:
        for fields, told in (
            ({"output_config": {"effort": "max"}}, "[False](max)"),
            ({"output_config": {"effort": "low"}, "thinking": {"type": "adaptive"}}, "[True](low)"),
        ):
            assert (await ask(shim, **fields)).status_code == 200
            assert last_prompt(shim) == told


@pytest.fixture(params=[True, False], ids=["tokens", "letters"])
async def thinker(
    runtime: ScriptedRuntime, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Shim, bool]]:
    """Of a model whose thoughts have marks that are tokens, or not."""
    save(tmp_path, "{# <think> enable_thinking #}")
    if request.param:
        marks = [AddedToken(tag, special=False, normalized=False) for tag in ("<think>", "</think>")]
        tiny_tokenizer.add(tmp_path, *marks)
    async with serving_shim(runtime, tmp_path) as shim:
        yield shim, request.param


def bound(shim: Shim) -> int:
    """Tokens of a thought that the runtime was told; 0: none."""
    return int(shim.runtime.requests["Generate"][-1].reasoning.max_tokens)


async def test_a_bound_that_is_a_wish(thinker: tuple[Shim, bool]) -> None:
    shim, has_marks = thinker
    assert (await shim.chat(**MAX_TOKENS, thinking_budget=7)).status_code == 200
    assert bound(shim) == 7 * has_marks
    assert (await ask(shim, thinking={"type": "enabled", "budget_tokens": 9})).status_code == 200
    assert bound(shim) == 9 * has_marks
    assert (await ask(shim, thinking={"type": "disabled", "budget_tokens": 9})).status_code == 200
    assert bound(shim) == 0


async def test_a_bound_that_is_demanded_counts_before_it(thinker: tuple[Shim, bool]) -> None:
    shim, has_marks = thinker
    response = await shim.chat(**MAX_TOKENS, thinking_budget=7, kakeya={"max_reasoning_tokens": 5})
    assert response.status_code == (200 if has_marks else 400)
    if has_marks:
        assert bound(shim) == 5
    else:
        assert response.json()["error"]["param"] == "kakeya.max_reasoning_tokens"


async def test_a_wish_is_nothing_to_a_model_that_does_not_think(shim: Shim) -> None:
    assert (await shim.chat(**MAX_TOKENS, thinking_budget=7)).status_code == 200
    assert not shim.runtime.requests["Generate"][-1].HasField("reasoning")
