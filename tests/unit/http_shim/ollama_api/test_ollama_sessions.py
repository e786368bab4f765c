"""Conversations over Ollama's API go on in their sessions, and in those of their equals over OpenAI's."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.http_shim.ollama_api.asking import ask, lines
from tests.unit.http_shim.shim import CHAT, MODEL, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails


@pytest.fixture
async def live(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    runtime.models[0].lane_token_count = 4096
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        yield shim


@dataclass
class Talk:
    """A conversation that is sent whole with each turn."""

    shim: Shim
    messages: list[dict[str, Any]] = field(default_factory=lambda: [{"role": "system", "content": "Be kind."}])

    async def says(self, text: str, answer: str = "Yes.", *, headers: Any = None, **fields: Any) -> Told:
        self.messages.append({"role": "user", "content": text})
        self.shim.will_say(answer)
        response = await ask(self.shim, messages=self.messages, headers=headers, **fields)
        told, line = Told.by(response), response.json()
        assert line["prompt_eval_count"] == told.appended + told.reused
        assert line["kakeya"]["session"] == vars(told)
        self.messages.append(line["message"])
        return told


async def test_each_turn_appends_its_own_tokens(live: Shim) -> None:
    talk = Talk(live)
    first = await talk.says("Hello")
    assert first.short == ("new", "first-turn")
    for number in range(3):
        told = await talk.says(f"And {number}?", options={"temperature": number / 10})
        behind = f"\n<|im_start|>user\nAnd {number}?<|im_end|>\n<|im_start|>assistant\n"
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
        assert told.appended == len(live.tokens(behind))


async def test_a_stream_goes_on_as_well(live: Shim) -> None:
    talk = Talk(live)
    first = await talk.says("Hello")
    live.will_say("Well.")
    told = await lines(live, messages=[*talk.messages, {"role": "user", "content": "And?"}])
    session = told[-1]["kakeya"]["session"]
    assert (session["state"], session["id"]) == ("continued", first.id)


async def test_a_conversation_goes_from_one_api_to_the_other(live: Shim) -> None:
    talk = Talk(live)
    first = await talk.says("Hello")
    live.will_say("Indeed.")
    chat = [*talk.messages, {"role": "user", "content": "Really?"}]
    by_chat = Told.by(await live.http.post(CHAT, json={"messages": chat, "model": MODEL, "max_tokens": 50}))
    assert (by_chat.short, by_chat.id) == (("continued", "next-turn"), first.id)
    talk.messages = [*chat, {"role": "assistant", "content": "Indeed."}]
    assert (await talk.says("And now?")).id == first.id


async def test_a_client_that_insists(live: Shim) -> None:
    talk = Talk(live)
    first = await talk.says("Hello")
    assert (await talk.says("And?", headers={"kakeya-session-id": first.id})).id == first.id
    assert (await talk.says("And?", headers={"kakeya-session": "new"})).short == ("new", "asked")
    response = await ask(live, headers={"kakeya-session-id": first.id})
    assert (response.status_code, response.json().keys()) == (409, {"error"})


@pytest.mark.parametrize(
    ("keep_alive", "seconds"), [(None, 1800), ("5m", 300), (7, 7), (0, 1), (-1, 86_400), ("48h", 86_400)]
)
async def test_a_session_is_kept_on_its_lane_for_so_long(live: Shim, keep_alive: Any, seconds: int) -> None:
    await Talk(live).says("Hello", keep_alive=keep_alive)
    assert live.runtime.requests["CreateSession"][-1].park_after_seconds == seconds


def has_parked(live: Shim, number: int) -> bool:
    return len(live.runtime.requests["ParkSession"]) == number


async def test_a_session_is_parked_behind_its_answer(live: Shim) -> None:
    talk = Talk(live)
    told = await talk.says("Hello", keep_alive="5m")
    assert "ParkSession" not in live.runtime.calls
    live.runtime.before["ParkSession"].append(fails("SNAPSHOT_STORE_UNAVAILABLE"))
    for number in (1, 2):
        assert (await talk.says("And?", keep_alive=0)).id == told.id
        await asyncio.to_thread(live.runtime.wait_for, partial(has_parked, live, number))
    assert [request.session_id for request in live.runtime.requests["ParkSession"]] == [told.id] * 2


async def test_a_prompt_is_no_conversation(live: Shim) -> None:
    live.will_say("Yes.")
    response = await live.http.post("/api/generate", json={"model": MODEL, "prompt": "Hello", "stream": False})
    told = Told.by(response)
    assert (told.short, told.id) == (("new", "off"), "")
