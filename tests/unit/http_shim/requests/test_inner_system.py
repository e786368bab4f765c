"""System messages within a conversation, where a chat template takes none there, are told beside others."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.requests.inner_system import without_inner_system
from kakeya_http_shim.requests.messages import Messages
from tests.unit.http_shim.messages_api.asking import ask, count
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.sdk import families
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

MESSAGES = TypeAdapter(Messages)
CALL = {"id": "abc123def", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def said(role: str, content: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def result(content: str) -> dict[str, Any]:
    return said("tool", content, tool_call_id=CALL["id"])


def called() -> dict[str, Any]:
    return said("assistant", "", tool_calls=[CALL])


def short(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The roles and texts that are told; parts are set apart by a bar."""
    told: list[tuple[str, str]] = []
    for message in without_inner_system(MESSAGES.validate_python(messages)):
        content: Any = message.content
        told.append((message.role, content if isinstance(content, str) else "|".join(part.text for part in content)))
    return told


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([said("system", "s"), said("user", "u")], [("system", "s"), ("user", "u")]),
        (
            [said("system", "s"), said("system", "t"), said("user", "u")],
            [("system", "s"), ("system", "t"), ("user", "u")],
        ),
        ([said("user", "u"), said("system", "s"), said("system", "t")], [("user", "u|s|t")]),
        (
            [said("user", "u"), said("assistant", "a"), said("system", "s"), said("user", "v")],
            [("user", "u"), ("assistant", "a"), ("user", "s|v")],
        ),
        (
            [said("user", "u"), called(), result("r"), said("system", "s"), said("assistant", "a")],
            [("user", "u"), ("assistant", ""), ("tool", "r|s"), ("assistant", "a")],
        ),
        (
            [said("user", "u"), said("assistant", "a"), said("system", "s"), said("assistant", "b")],
            [("user", "u"), ("assistant", "a"), ("user", "s"), ("assistant", "b")],
        ),
        (
            [said("user", "u"), said("assistant", "a"), said("system", "s"), said("system", "t")],
            [("user", "u"), ("assistant", "a"), ("user", "s|t")],
        ),
        (
            [said("user", "u"), said("assistant", "a"), said("system", "s"), said("user", "v"), said("system", "t")],
            [("user", "u"), ("assistant", "a"), ("user", "s|v|t")],
        ),
    ],
)
def test_where_they_go(messages: list[dict[str, Any]], told: list[tuple[str, str]]) -> None:
    assert short(messages) == told


def test_what_was_told_stays_where_it_is_as_a_conversation_grows() -> None:
    """Else its session would not go on."""
    whole = [said("user", "u"), said("system", "s"), said("assistant", "a"), said("system", "t"), said("user", "v")]
    whole += [
        called(),
        result("r"),
        said("system", "w"),
        said("assistant", "b"),
        said("user", "x"),
        said("system", "y"),
    ]
    ends = [number for number in range(1, len(whole)) if whole[number]["role"] == "assistant"]
    for end in ends:
        before = short(whole[:end])
        assert short(whole)[: len(before)] == before


@pytest.fixture(scope="session")
def mistral_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of a model whose chat template takes system messages at the beginning alone."""
    folder = tmp_path_factory.mktemp("mistral")
    families.save(folder, families.ONES["mistral"])
    return folder


@pytest.fixture
async def strict(runtime: ScriptedRuntime, mistral_dir: Path) -> AsyncIterator[Shim]:
    runtime.models[0].lane_token_count = 4096
    async with serving_shim(runtime, mistral_dir, "--live-sessions", "on") as shim:
        yield shim


async def test_a_conversation_with_them_goes_on(strict: Shim, mistral_dir: Path) -> None:
    messages = [said("user", "Hello"), said("system", "It rains.")]
    strict.will_say("Oh.", "Well.")
    first = Told.by(await ask(strict, messages=messages))
    assert await count(strict, messages=messages) == first.appended
    messages += [said("assistant", "Oh."), said("system", "It pours."), said("user", "And?")]
    second = Told.by(await ask(strict, messages=messages))
    assert (second.short, second.id) == (("continued", "next-turn"), first.id)
    text = ModelTokenizer(str(mistral_dir)).decode(strict.runtime.sessions[first.id].history)
    assert all(each in text for each in ("It rains.", "It pours."))


@pytest.mark.parametrize(("family", "takes"), [("chatml", True), ("qwen2_5", True), ("mistral", False)])
def test_which_templates_take_them(tmp_path: Path, family: str, takes: bool) -> None:
    families.save(tmp_path, families.ONES[family])
    assert ModelTokenizer(str(tmp_path)).takes_inner_system is takes
