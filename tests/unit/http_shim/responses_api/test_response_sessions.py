"""Conversations over Responses go on in their sessions, and in those of their equals over chat completions."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.http_shim.responses_api.asking import ask, events, user
from tests.unit.http_shim.shim import CHAT, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
async def live(runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    runtime.models[0].lane_token_count = 4096  # for instructions, which are pinned
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        yield shim


@dataclass
class Items:
    """A conversation that is sent whole with each turn."""

    shim: Shim
    items: list[Any] = field(default_factory=list)

    async def says(self, text: str, answer: str = "Yes.", *, headers: Any = None, **fields: Any) -> Told:
        self.items.append(user(text))
        self.shim.will_say(answer)
        response = await ask(self.shim, input=self.items, headers=headers, **fields)
        told, usage = Told.by(response), response.json()["usage"]
        assert usage["input_tokens"] == told.appended + told.reused
        assert usage["input_tokens_details"]["cached_tokens"] == told.reused
        assert usage["kakeya"]["session"] == vars(told)
        self.items += response.json()["output"]
        return told


async def test_each_turn_appends_its_own_tokens(live: Shim) -> None:
    talk = Items(live)
    first = await talk.says("Hello", instructions="Be kind.")
    assert first.short == ("new", "first-turn")
    for number in range(3):
        told = await talk.says(f"And {number}?", instructions="Be kind.", prompt_cache_key="k")
        behind = f"\n<|im_start|>user\nAnd {number}?<|im_end|>\n<|im_start|>assistant\n"
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
        assert told.appended == len(live.tokens(behind))


async def test_other_instructions_are_another_conversation(live: Shim) -> None:
    talk = Items(live)
    await talk.says("Hello", instructions="Be kind.")
    assert (await talk.says("And?", instructions="Be rude.")).short == ("new", "not-found")


async def test_two_answers_in_a_row_are_two(live: Shim) -> None:
    talk = Items(live, [user("Hello"), {"role": "assistant", "content": "One."}])
    talk.items.append({"role": "assistant", "content": [{"type": "output_text", "text": "Two."}]})
    first = await talk.says("And?")
    history = live.tokenizer.decode(live.runtime.sessions[first.id].history, special_tokens=True)
    said = "<|im_start|>assistant\nOne.<|im_end|>\n<|im_start|>assistant\nTwo.<|im_end|>\n"
    assert said in history
    assert (await talk.says("And now?")).id == first.id


async def test_a_stream_tells_what_was_reused(live: Shim) -> None:
    talk = Items(live)
    await talk.says("Hello")
    live.will_say("Well.")
    told = await events(live, input=[*talk.items, user("And?")])
    assert told[-1]["response"]["usage"]["kakeya"]["session"]["state"] == "continued"


async def test_a_conversation_goes_from_one_api_to_the_other(live: Shim) -> None:
    talk = Items(live)
    first = await talk.says("Hello", instructions="Be kind.")
    live.will_say("Indeed.")
    chat = [
        {"role": "system", "content": "Be kind."},
        user("Hello"),
        {"role": "assistant", "content": "Yes."},
        user("Really?"),
    ]
    by_chat = Told.by(await live.http.post(CHAT, json={"messages": chat, "max_tokens": 50}))
    assert (by_chat.short, by_chat.id) == (("continued", "next-turn"), first.id)
    talk.items += [user("Really?"), {"role": "assistant", "content": "Indeed."}]
    assert (await talk.says("And now?", instructions="Be kind.")).id == first.id


async def test_a_client_that_insists(live: Shim) -> None:
    talk = Items(live)
    first = await talk.says("Hello")
    assert (await talk.says("And?", headers={"kakeya-session-id": first.id})).id == first.id
    assert (await talk.says("And?", headers={"kakeya-session": "new"})).short == ("new", "asked")
    response = await ask(live, input="Something else", headers={"kakeya-session-id": first.id})
    assert response.status_code == 409


async def test_instructions_in_mid_conversation_where_a_template_takes_none_there(
    runtime: ScriptedRuntime, tmp_path: Path
) -> None:

    tiny_tokenizer.save(tmp_path, template=True)
    strict = (
        "{% for message in messages[1:] %}{% if message['role'] == 'system' %}"
        "{{ raise_exception('only first') }}{% endif %}{% endfor %}"
    )
    (tmp_path / "chat_template.jinja").write_text(strict + tiny_tokenizer.TEMPLATE)
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on") as shim:
        talk = Items(shim, [user("Hello"), {"type": "message", "role": "developer", "content": "Be kind."}])
        first = await talk.says("Well?")
        assert (await talk.says("And?")).id == first.id
