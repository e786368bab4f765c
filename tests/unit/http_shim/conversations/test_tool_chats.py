"""Chats with tools in live sessions: calls and results are appended, and what was said stays as it was."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kakeya.text.chat_tokenizer import ChatTokenizer
from tests.unit.http_shim.shim import CHAT, Shim, data
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.http_shim.tool_talk import OSLO, ROME, TOOLS, hermes, streamed, whole
from tests.unit.sdk import families
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

pytestmark = pytest.mark.usefixtures("roomy")
Say = Callable[[str, dict[str, Any]], str]


def llama(name: str, arguments: dict[str, Any]) -> str:
    return f'{{"name": "{name}",  "parameters": {json.dumps(arguments)}}}'


def mistral(name: str, arguments: dict[str, Any]) -> str:
    return f'[TOOL_CALLS] [{{"name":"{name}","arguments": {json.dumps(arguments)}}}]'


SAYS: dict[str, Say] = {"qwen2_5": hermes, "qwen3": hermes, "llama3": llama, "mistral": mistral}
"""How models of these templates call, spaced as the templates do not."""
SUFFIXES = {
    "qwen2_5": "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    "qwen3": "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    "llama3": (
        '<|start_header_id|>ipython<|end_header_id|>\n\n"5"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n'
    ),
}
"""What they write behind a call whose result is 5."""


@dataclass
class Agent:
    """A client that runs tools; it sends back what it got, arguments written anew."""

    shim: Shim
    streams: bool
    tools: list[dict[str, Any]] = field(default_factory=lambda: TOOLS)
    messages: list[dict[str, Any]] = field(default_factory=lambda: [{"role": "system", "content": "Be kind."}])

    async def turn(self, says: str, *, ends: bool = True, **fields: Any) -> Told:
        self.shim.will_say(says, ends=ends)
        size = len(self.shim.tokens(says)) + (8 if ends else 0)
        body = {"messages": self.messages, "tools": self.tools, "max_tokens": size, "stream": self.streams, **fields}
        response = await self.shim.http.post(CHAT, json=body)
        told = Told.by(response)
        message = streamed(data(response.text.splitlines())) if self.streams else whole(response.json())
        message = {name: message.get(name) for name in ("role", "content", "tool_calls") if message.get(name)}
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=1)
        self.messages.append(message)
        return told

    async def asks(self, text: str, says: str, **fields: Any) -> Told:
        self.messages.append({"role": "user", "content": text})
        return await self.turn(says, **fields)

    async def answers(self, result: str, says: str, **fields: Any) -> Told:
        """With the results of the calls of the last answer."""
        calls = self.messages[-1]["tool_calls"]
        self.messages += [{"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls]
        return await self.turn(says, **fields)

    def history(self, told: Told) -> str:
        return self.shim.tokenizer.decode(self.shim.runtime.sessions[told.id].history, special_tokens=True)


@asynccontextmanager
async def agent(runtime: ScriptedRuntime, folder: Path, template: str, streams: bool) -> AsyncIterator[Agent]:
    end = {"llama3": "<|eot_id|>"}.get(template, "<|im_end|>")
    families.save(folder, families.ONES[template])
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"eos_token": end}))
    flags = (
        ("--live-sessions", "on", "--tool-parser", "counter=llama")
        if template == "llama3"
        else ("--live-sessions", "on")
    )
    async with serving_shim(runtime, folder, *flags) as shim:
        yield Agent(shim, streams)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
@pytest.mark.parametrize("template", SAYS)
async def test_each_turn_of_a_loop_goes_on(
    runtime: ScriptedRuntime, tmp_path: Path, template: str, streams: bool
) -> None:
    say = SAYS[template]
    async with agent(runtime, tmp_path, template, streams) as client:
        first = await client.asks("How is Oslo?", say("get_weather", OSLO))
        assert first.short == ("new", "first-turn")
        for number in range(4):
            length = len(runtime.sessions[first.id].history)
            told = await client.answers("5", f"It is {number}.")
            assert (told.short, told.id, told.reused) == (("continued", "next-turn"), first.id, length)
            if template in SUFFIXES:
                assert told.appended == len(client.shim.tokens(SUFFIXES[template]))
                assert f"{say('get_weather', OSLO if not number else ROME)}" in client.history(told)
            length = len(runtime.sessions[first.id].history)
            told = await client.asks(f"And {number}?", say("get_weather", ROME))
            assert (told.short, told.id, told.reused) == (("continued", "next-turn"), first.id, length)


@pytest.mark.parametrize("template", ["qwen2_5", "qwen3", "mistral"])
async def test_several_calls_with_text_before_them(runtime: ScriptedRuntime, tmp_path: Path, template: str) -> None:
    say = SAYS[template]
    calls = f"{say('get_weather', OSLO)}\n{say('get_weather', ROME)}"
    if template == "mistral":
        calls = calls.replace("]\n[TOOL_CALLS] [", ", ")
    async with agent(runtime, tmp_path, template, True) as client:
        first = await client.asks("How is it?", "I look.\n" + calls)
        assert len(client.messages[-1]["tool_calls"]) == 2
        told = await client.answers("5", "Fine.")
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
        assert calls in client.history(told)


async def test_another_list_of_tools_is_another_session(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    async with agent(runtime, tmp_path, "qwen2_5", False) as client:
        first = await client.asks("How is Oslo?", hermes("get_weather", OSLO))
        client.tools = TOOLS[:1]
        told = await client.answers("5", "Fine.")
        assert (told.short, told.id == first.id) == (("new", "not-found"), False)
        client.tools = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": True}}]  # type: ignore[dict-item]
        again = await client.asks("And now?", "Fine, too.")
        assert (again.short, again.id) == (("continued", "next-turn"), told.id), "the model is told the same"


async def test_a_choice_of_none_stays_in_the_session(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    async with agent(runtime, tmp_path, "qwen2_5", False) as client:
        first = await client.asks("How is Oslo?", hermes("get_weather", OSLO))
        told = await client.answers("5", hermes("get_weather", ROME), tool_choice="none")
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
        assert client.messages[-1]["content"] == hermes("get_weather", ROME)
        told = await client.asks("And now?", "Fine, too.")
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)


async def test_other_arguments_are_another_call(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    async with agent(runtime, tmp_path, "qwen2_5", False) as client:
        first = await client.asks("How is Oslo?", hermes("get_weather", OSLO))
        client.messages[-1]["tool_calls"][0]["function"]["arguments"] = '{"city": "Bergen"}'
        told = await client.answers("5", "Fine.")
        assert told.short == ("forked", "edited")
        assert told.id != first.id
        assert "Bergen" in client.history(told)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
async def test_an_answer_that_ended_with_its_first_call(
    runtime: ScriptedRuntime, tmp_path: Path, streams: bool
) -> None:
    """What the model said behind it is taken back, and the call is written by the template."""
    async with agent(runtime, tmp_path, "qwen2_5", streams) as client:
        one, other = hermes("get_weather", OSLO), hermes("get_weather", ROME)
        first = await client.asks("How is Oslo?", f"{one}\n{other}", parallel_tool_calls=False)
        told = await client.answers("5", one, parallel_tool_calls=False)
        assert (told.short, told.id) == (("continued", "cut-answer"), first.id)
        assert "Rome" not in client.history(told)
        told = await client.answers("5", "Fine.", parallel_tool_calls=False)
        assert (told.short, told.id) == (("continued", "next-turn"), first.id), "nothing followed that call"


async def test_what_was_cut_behind_a_call_is_taken_back(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    async with agent(runtime, tmp_path, "qwen2_5", False) as client:
        one, other = hermes("get_weather", OSLO), hermes("get_weather", ROME)
        first = await client.asks("How is Oslo?", f"{one}\n{other[:-20]}", ends=False)
        told = await client.answers("5", "Fine.")
        assert (told.short, told.id) == (("continued", "cut-answer"), first.id)
        assert "Rome" not in client.history(told)


async def test_a_call_that_is_cut_goes_on_as_a_text(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    async with agent(runtime, tmp_path, "qwen2_5", False) as client:
        cut = hermes("get_weather", OSLO)[:-20]
        first = await client.asks("How is Oslo?", cut, ends=False)
        told = await client.asks("Go on.", "Fine.")
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
        assert f"{cut}<|im_end|>\n<|im_start|>user\nGo on." in client.history(told)


async def test_another_end_behind_a_call(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    """Llama ends an answer with a call by another token than its template writes; it stays as it was said."""
    families.save(tmp_path, families.ONES["llama3"])
    (end,) = ChatTokenizer(str(tmp_path)).encode("<|end|>")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on", "--tool-parser", "counter=llama") as shim:
        client = Agent(shim, False)
        first = await client.asks("How is Oslo?", llama("get_weather", OSLO) + "<|end|>", ends=False, max_tokens=99)
        told = await client.answers("5", "Fine.")
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
        assert f"{llama('get_weather', OSLO)}<|end|><|start_header_id|>ipython" in client.history(told)


async def test_a_thought_that_a_call_ends(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    """Its last tag is missing: it has ended nevertheless, and stays where it was thought."""
    families.save(tmp_path, families.ONES["qwen3"].replace('{\\"name\\"', "<function=f>\n<parameter=a>"))
    call = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on") as shim:
        client = Agent(shim, False)
        first = await client.asks("How is Oslo?", f"<think>\nhm\n{call}")
        told = await client.answers("5", "<think>\nhm\n</think>\n\nFine.")
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
        assert f"<think>\nhm\n{call}<|im_end|>" in client.history(told)


async def test_several_answers_that_call(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    async with agent(runtime, tmp_path, "qwen2_5", False) as client:
        client.messages.append({"role": "user", "content": "How is Oslo?"})
        client.shim.will_say(*[hermes("get_weather", OSLO)] * 2)
        body = {"messages": client.messages, "tools": TOOLS, "max_tokens": 200, "n": 2}
        response = await client.shim.http.post(CHAT, json=body)
        first = Told.by(response)
        client.messages.append(response.json()["choices"][0]["message"])
        told = await client.answers("5", "Fine.")
        assert (told.short, told.id) == (("continued", "next-turn"), first.id)
