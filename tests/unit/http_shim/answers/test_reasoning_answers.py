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


@pytest.fixture
def opening_dir(thinking_dir: Path, tmp_path: Path) -> Path:
    """The tokenizer of a model whose prompts open the thought."""
    shutil.copytree(thinking_dir, tmp_path, dirs_exist_ok=True)
    (tmp_path / "chat_template.jinja").write_text(tiny_tokenizer.TEMPLATE + "<think>\n")
    return tmp_path


STOPPED: list[tuple[str, str, list[str], str, str]] = [
    ("first\n\nthen", "Yes.\n\nNo.", ["\n\n"], "Yes.", "\n\n"),
    ("hm. hm.", "Yes. No.", [". "], "Yes", ". "),
    ("a b c d", "a b c d", ["c", "b", "d"], "a ", "b"),
    ("hm", "Yes.", ["hm", "</think>", "hm</think>\n\nYes", "\nYes"], "Yes.", ""),
    ("hm", "Yes.", ["Yes"], "", "Yes"),
    ("hm", "hm", ["h"], "", "h"),
    ("<b", "</b", ["b</", "k>"], "</b", ""),
    ("", "Yes. No.", ["No"], "Yes. ", "No"),
]
"""Thoughts, what follows them, stop texts, the content, and the stop text that is found there."""


@pytest.mark.parametrize("tag", ["<think>", ""])
async def test_stop_texts_are_for_the_answer(
    runtime: ScriptedRuntime, thinking_dir: Path, opening_dir: Path, tag: str
) -> None:
    async with serving_shim(runtime, thinking_dir if tag else opening_dir) as shim:
        for thought, said, stop, content, found in STOPPED:
            text = f"{tag}{thought}</think>\n\n{said}"
            shim.will_say(text, text)
            answer = (await shim.chat(stop=stop)).json()
            (choice,) = answer["choices"]
            message = choice["message"]
            assert (message["content"], message.get("reasoning_content", "")) == (content, thought)
            assert choice["finish_reason"] == "stop"
            num_tokens = text.rindex(said) + len(content + found) + (not found)
            assert answer["usage"]["completion_tokens"] == num_tokens, "nothing is said after it"
            streamed = [event["choices"][0] for event in (await shim.events(stop=stop))[:-1]]
            deltas = [piece["delta"] for piece in streamed]
            assert "".join(delta.get("content", "") for delta in deltas) == content
            assert "".join(delta.get("reasoning_content", "") for delta in deltas) == thought
            assert streamed[-1]["finish_reason"] == "stop"
            await shim.nothing_left()


async def test_thoughts_that_never_end_are_stopped_by_nothing_they_hold(
    runtime: ScriptedRuntime, opening_dir: Path
) -> None:
    async with serving_shim(runtime, opening_dir) as shim:
        shim.will_say("hm. " * 5, ends=False)
        choice = (await shim.chat(stop=["hm", ". "], max_tokens=20)).json()["choices"][0]
    assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == ("", "hm. " * 5)
    assert choice["finish_reason"] == "length"


async def test_what_only_began_like_a_thought_is_an_answer_with_its_stop_texts(thinker: Shim) -> None:
    for text, stop, content in [("\n\n<th", "\n", ""), ("  \n", "\n", "  "), ("<thin k>", "k", "<thin ")]:
        thinker.will_say(text)
        choice = (await thinker.chat(stop=stop)).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (content, "stop")


@pytest.mark.parametrize("flags", [(), ("--reasoning", "off")])
async def test_where_thoughts_are_not_told_apart_all_is_the_answer(
    runtime: ScriptedRuntime, thinking_dir: Path, flags: tuple[str, ...]
) -> None:
    async with serving_shim(runtime, thinking_dir, *flags) as shim:
        shim.will_say("<think>one. two.</think>Yes.", "<think>one. two.</think>Yes.")
        text = (await shim.complete(stop=". ", max_tokens=40)).json()["choices"][0]["text"]
        assert text == "<think>one", "completions have no thoughts"
        if flags:
            assert (await shim.chat(stop=". ")).json()["choices"][0]["message"]["content"] == "<think>one"


async def test_log_probabilities_are_of_what_was_given_out(thinker: Shim) -> None:
    thinker.will_say("<think>ab</think>\ncd. e")
    choice = (await thinker.chat(logprobs=True, stop=". ")).json()["choices"][0]
    assert choice["message"]["content"] == "cd"
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == "<think>ab</think>\ncd"
    thinker.will_say("<think>ab</think>\ncd. e")
    streamed = [event["choices"][0] for event in (await thinker.events(logprobs=True, stop=". "))[:-1]]
    said = ""
    for piece in streamed:
        entries = piece["logprobs"]["content"] if piece["logprobs"] else []
        said += "".join(entry["token"] for entry in entries)
    assert said == "<think>ab</think>\ncd"


async def test_a_prompt_that_opens_the_thought(runtime: ScriptedRuntime, opening_dir: Path) -> None:
    async with serving_shim(runtime, opening_dir) as shim:
        shim.will_say("hm</think>Yes.")
        message = (await shim.chat()).json()["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"]) == ("Yes.", "hm")


@pytest.mark.parametrize(
    ("begun", "said", "content", "thought"),
    [
        ("<think>\nh", "m</think>\n\nYes.", "Yes.", "m"),
        ("<think>hm</think>Y", "es. <think>no</think>", "es. <think>no</think>", ""),
        ("Y", "<think>es</think>", "<think>es</think>", ""),
        ("", "<think>hm</think>Yes.", "Yes.", "hm"),
    ],
)
async def test_an_answer_that_goes_on(thinker: Shim, begun: str, said: str, content: str, thought: str) -> None:
    thinker.will_say(said)
    messages = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": begun}]
    answer = (await thinker.chat(messages=messages, continue_final_message=True)).json()
    message = answer["choices"][0]["message"]
    assert (message["content"], message.get("reasoning_content", "")) == (content, thought)
