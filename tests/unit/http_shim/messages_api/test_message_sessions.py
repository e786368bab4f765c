"""Conversations over Anthropic's API go on in their sessions, and in those of their equals over OpenAI's."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.http_shim.messages_api.asking import ask, events
from tests.unit.http_shim.shim import CHAT, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

BILLING = "x-anthropic-billing-header: cc_version=2.1.177; cc_entrypoint=cli; cch={};"
MARK = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture
async def live(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    runtime.models[0].lane_token_count = 4096  # for system prompts, which are pinned
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        yield shim


@dataclass
class Messages:
    """A conversation that is sent whole with each turn."""

    shim: Shim
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def says(self, text: str, answer: str = "Yes.", *, headers: Any = None, **fields: Any) -> Told:
        self.messages.append({"role": "user", "content": text})
        self.shim.will_say(answer)
        response = await ask(self.shim, messages=self.messages, headers=headers, **fields)
        told, usage = Told.by(response), response.json()["usage"]
        assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (told.appended, told.reused)
        assert usage["cache_creation_input_tokens"] == 0
        assert usage["kakeya"]["session"] == vars(told)
        self.messages.append({"role": "assistant", "content": response.json()["content"]})
        return told


async def test_each_turn_appends_its_own_tokens(live: Shim) -> None:
    talk = Messages(live)
    first = await talk.says("Hello", system="Be kind.")
    assert first.short == ("new", "first-turn")
    for number in range(3):
        told = await talk.says(f"And {number}?", system="Be kind.")
        behind = f"\n<|im_start|>user\nAnd {number}?<|im_end|>\n<|im_start|>assistant\n"
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
        assert told.appended == len(live.tokens(behind))


async def test_a_stream_tells_what_was_reused_at_its_beginning(live: Shim) -> None:
    talk = Messages(live)
    await talk.says("Hello")
    live.will_say("Well.")
    told = await events(live, messages=[*talk.messages, {"role": "user", "content": "And?"}])
    at_start, at_end = told[0]["message"]["usage"], told[-2]["usage"]
    assert at_start["cache_read_input_tokens"] > 0
    assert at_start["kakeya"]["session"]["state"] == "continued"
    for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        assert at_start[name] == at_end[name]


async def test_what_changes_for_anthropics_books_changes_nothing(live: Shim) -> None:
    talk = Messages(live)
    ids = []
    for number in range(3):
        system = [
            {"type": "text", "text": BILLING.format(number)},
            {"type": "text", "text": "You are an agent.", **MARK},
        ]
        told = await talk.says(f"Turn {number}", system=system, metadata={"user_id": f"session {number}"})
        ids.append(told.id)
    assert (len(set(ids)), told.short) == (1, ("continued", "next-turn"))
    history = live.tokenizer.decode(live.runtime.sessions[told.id].history, special_tokens=True)
    assert history.startswith("<|im_start|>system\nYou are an agent.<|im_end|>\n<|im_start|>user\nTurn 0")


async def test_marks_for_a_cache_wander(live: Shim) -> None:
    talk = Messages(live)
    first = await talk.says("Hello")
    talk.messages[0] = {"role": "user", "content": [{"type": "text", "text": "Hello", **MARK}]}
    assert (await talk.says("And?", cache_control={"type": "ephemeral"})).id == first.id


async def test_a_conversation_goes_from_one_api_to_the_other(live: Shim) -> None:
    talk = Messages(live)
    first = await talk.says("Hello", system="Be kind.")
    live.will_say("Indeed.")
    chat = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Really?"},
    ]
    by_chat = Told.by(await live.http.post(CHAT, json={"messages": chat, "max_tokens": 50}))
    assert (by_chat.short, by_chat.id) == (("continued", "next-turn"), first.id)
    talk.messages += [{"role": "user", "content": "Really?"}, {"role": "assistant", "content": "Indeed."}]
    back = await talk.says("And now?", system="Be kind.")
    assert (back.short, back.id) == (("continued", "next-turn"), first.id)


async def test_a_client_that_insists(live: Shim) -> None:
    talk = Messages(live)
    first = await talk.says("Hello")
    told = await talk.says("And?", headers={"kakeya-session-id": first.id})
    assert told.id == first.id
    told = await talk.says("And?", headers={"kakeya-session": "new"})
    assert told.short == ("new", "asked")
    other = [{"role": "user", "content": "Something else"}]
    response = await ask(live, messages=other, headers={"kakeya-session-id": first.id})
    assert (response.status_code, response.json()["error"]["type"]) == (409, "invalid_request_error")


async def test_an_answer_that_goes_on_has_no_live_session(live: Shim) -> None:
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "I am"}]
    live.will_say(" fine.")
    told = Told.by(await ask(live, messages=messages))
    assert (told.short, told.id) == (("new", "off"), "")
