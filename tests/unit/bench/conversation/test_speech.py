"""Who speaks in a bench, against a runtime that says which models it serves."""

import shutil
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kakeya import AsyncClient
from kakeya.cli.flags import installed_models
from kakeya.text.tokenizer_error import TokenizerError
from kakeya_bench.conversation import speech
from kakeya_bench.conversation.prompts import NoPrompts, RandomTokens
from kakeya_bench.conversation.runtime import connected
from kakeya_bench.conversation.speech import Speech
from tests.unit.bench.conversation.playing import PlainSettings
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import VOCAB_SIZE, ScriptedRuntime, model

Choose = Callable[..., Any]
"""What is chosen with these options."""


@pytest.fixture
def choose(runtime: ScriptedRuntime, installed: list[str]) -> Choose:
    async def choose(*flags: str) -> Speech:
        async with AsyncClient(runtime.address) as client:
            return await speech.choose(client, PlainSettings.parse([*flags]))

    return choose


@pytest.fixture
def installed(template_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of installed models, all with the tokenizer of `template_dir`."""
    names = ["counter"]
    (tmp_path / "a_model_for_speech.py").write_text(f"def directory(): return {str(template_dir)!r}\n")
    monkeypatch.syspath_prepend(tmp_path)

    def entry_points(group: str, name: str) -> list[EntryPoint]:
        return [EntryPoint(name, "a_model_for_speech:directory", group)] if name in names else []

    monkeypatch.setattr(installed_models, "entry_points", entry_points)
    return names


def _first(said: Speech, conversation: int = 0) -> str:
    assert said.tokenizer is not None
    return said.tokenizer.decode(said.prompts(conversation).next_turn(None), special_tokens=True)


async def test_the_tokenizer_is_that_of_the_model_that_is_served(choose: Choose, template_dir: Path) -> None:
    said = await choose()
    assert (said.model, said.vocab_size) == ("counter", VOCAB_SIZE)
    assert said.tokenizer.name == str(template_dir)
    assert said.eos_token_ids == said.tokenizer.eos_token_ids == [256]
    text = _first(said)
    assert text.startswith("<|im_start|>user\n")
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")


async def test_a_model_may_be_named(choose: Choose, runtime: ScriptedRuntime, installed: list[str]) -> None:
    runtime.models = [model("counter", is_default=True), model("other")]
    runtime.models[1].vocab_size = 500
    installed.append("other")
    said = await choose("--model", "other")
    assert (said.model, said.vocab_size) == ("other", 500)


async def test_a_tokenizer_may_be_named(choose: Choose, plain_dir: Path, template_dir: Path) -> None:
    by_directory, by_name = await choose("--tokenizer", str(plain_dir)), await choose("--tokenizer", "counter")
    assert by_directory.tokenizer.name == str(plain_dir)
    assert by_directory.eos_token_ids == []
    assert by_name.tokenizer.name == str(template_dir)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "which tokenizer\\? The model is 'counter', and none of that name"),
        (["--model", "other"], "no worker serves the model 'other'"),
        (["--tokenizer", "/nowhere"], "/nowhere is no directory"),
    ],
)
async def test_nothing_can_be_said(choose: Choose, installed: list[str], flags: list[str], says: str) -> None:
    installed.clear()
    with pytest.raises(TokenizerError, match=says):
        await choose(*flags)


async def test_random_tokens_need_no_tokenizer(choose: Choose, installed: list[str]) -> None:
    installed.clear()
    said = await choose("--random-tokens", "300", "--seed", "3")
    assert (said.tokenizer, said.eos_token_ids, said.directory) == (None, [], None)
    assert said.vocab_size == VOCAB_SIZE
    prompts = said.prompts(4)
    assert isinstance(prompts, RandomTokens)
    turn = prompts.next_turn(None)
    assert len(turn) == 300
    assert 9 * VOCAB_SIZE // 10 < max(turn) < VOCAB_SIZE, "all of the vocabulary is said"
    assert turn == said.prompts(4).next_turn(None) == RandomTokens(300, VOCAB_SIZE, seed=3, conversation=4).next_turn(0)
    assert turn != said.prompts(5).next_turn(None)


async def test_messages_may_be_sent_as_they_are_and_answers_be_equally_long(choose: Choose) -> None:
    said = await choose("--no-chat-template", "--ignore-eos")
    assert "<|im_start|>" not in _first(said)
    assert _first(said).endswith("\n")
    assert said.eos_token_ids == []


async def test_each_conversation_is_another_and_the_same_again(choose: Choose) -> None:
    said, again, other = [await choose("--seed", seed) for seed in ("7", "7", "8")]
    assert _first(said, 1) == _first(said, 1) == _first(again, 1)
    assert len({_first(said, 1), _first(said, 2), _first(other, 1)}) == 3


async def test_messages_of_a_file(choose: Choose, tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text("".join(f"message {number}\n" for number in range(100)))
    said = await choose("--prompts", str(file), "--no-chat-template", "--seed", "1")
    assert _first(said, 1).startswith("message ")
    file.unlink()
    with pytest.raises(NoPrompts, match="No such file"):
        said.prompts(0)


async def test_the_models_files_are_beside_the_tokenizer_where_they_are(
    choose: Choose, template_dir: Path, tmp_path: Path
) -> None:
    assert (await choose()).directory is None, "there is a tokenizer alone"
    whole = tmp_path / "model"
    shutil.copytree(template_dir, whole)
    (whole / "config.json").write_text('{"model_type": "qwen3"}')
    assert (await choose("--tokenizer", str(whole))).directory == whole


async def test_another_models_tokenizer_is_refused(runtime: ScriptedRuntime, choose: Choose, tmp_path: Path) -> None:
    fitting = tiny_tokenizer.save_with_words(tmp_path / "fitting", VOCAB_SIZE - 258)
    larger = tiny_tokenizer.save_with_words(tmp_path / "larger", VOCAB_SIZE - 257)
    async with connected(PlainSettings.parse(["--address", runtime.address])) as (client, workers):
        session = await client.create_session()
        for flags in (["--tokenizer", str(fitting)], ["--random-tokens", "1"]):
            assert (await (await choose(*flags)).learn(session, workers)).name == "counter"
        another = await choose("--tokenizer", str(larger))
        with pytest.raises(TokenizerError) as raised:
            await another.learn(session, workers)
    assert f"the tokenizer {larger} is another model's (1,001 ids, and the model knows 1,000); " in str(raised.value)
    session.vocab_size = None  # as an old runtime says it
    another.check(session)
