"""The demo checkpoint is a real, lively, reproducible model directory."""

import filecmp
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from kakeya_worker.demo_checkpoint import checkpoint, command, shape

FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
TEXTS = ("alice.txt", "founding_documents.txt", "origin_of_species.txt")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "demo"
    assert checkpoint.ensure_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.from_file(str(directory / "tokenizer.json"))


def sentences(directory: Path, text: str) -> list[str]:
    return (directory / "texts" / text).read_text("ascii").splitlines()


def test_holds_what_a_checkpoint_holds(directory: Path) -> None:
    assert sorted(path.name for path in directory.iterdir()) == sorted([*FILES, "texts"])
    assert sorted(path.name for path in (directory / "texts").iterdir()) == sorted(TEXTS)
    assert not [path for path in directory.parent.iterdir() if path != directory], "scratch left behind"


def test_is_the_same_everywhere(directory: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    build = multiprocessing.get_context("spawn").Process(target=checkpoint.ensure_checkpoint, args=(again,))
    build.start()
    build.join()
    assert build.exitcode == 0
    assert filecmp.cmpfiles(directory, again, FILES, shallow=False) == ([*FILES], [], [])


@pytest.mark.parametrize("text", TEXTS)
def test_greedy_output_wanders(directory: Path, tokenizer: Tokenizer, text: str) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(directory)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.dtype is torch.float32
    prompt = torch.tensor([tokenizer.encode(sentences(directory, text)[0]).ids])  # [1, tokens]
    output = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=256, min_new_tokens=256, do_sample=False
    )
    assert len(set(output[0, prompt.shape[1] :].tolist())) >= 100


@pytest.mark.parametrize("text", TEXTS)
def test_tokenizer_is_lossless_and_the_same_for_both_libraries(
    directory: Path, tokenizer: Tokenizer, text: str
) -> None:
    lines = sentences(directory, text)
    assert len(lines) >= 40
    slow = AutoTokenizer.from_pretrained(directory)
    for line in [*lines, "caf\u00e9 \u4e16\u754c \U0001f600\n\ttabs, 1234"]:
        ids = tokenizer.encode(line).ids
        assert slow(line)["input_ids"] == ids
        assert tokenizer.decode(ids) == line


def test_every_vocabulary_entry_is_used(directory: Path, tokenizer: Tokenizer) -> None:
    config = json.loads((directory / "config.json").read_text())
    generation = json.loads((directory / "generation_config.json").read_text())
    assert tokenizer.get_vocab_size() == config["vocab_size"] == shape.VOCAB_SIZE
    assert generation["eos_token_id"] == [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    assert None not in generation["eos_token_id"]


def test_chat_template(directory: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    rendered = AutoTokenizer.from_pretrained(directory).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert rendered == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_made_once(directory: Path) -> None:
    before = (directory / "model.safetensors").stat()
    assert not checkpoint.ensure_checkpoint(directory)
    after = (directory / "model.safetensors").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_an_older_recipe_is_replaced(tmp_path: Path) -> None:
    old = tmp_path / "demo"
    old.mkdir()
    (old / "config.json").write_text('{"kakeya_demo_recipe": 0}')
    (old / "stale").touch()
    assert checkpoint.ensure_checkpoint(old)
    assert sorted(path.name for path in old.iterdir()) == sorted([*FILES, "texts"])
    assert list(tmp_path.iterdir()) == [old]


def lose_the_race(monkeypatch: pytest.MonkeyPatch, contested: Path, winner: Path) -> None:
    """Lets `winner` appear at `contested` just before our own directory would be moved there."""

    def rename(path: Path, target: Path) -> Path:
        assert target == contested
        os.symlink(winner, contested)
        raise OSError("directory not empty")

    monkeypatch.setattr(Path, "rename", rename)


def test_another_process_may_win(tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "demo"
    lose_the_race(monkeypatch, mine, winner=directory)
    checkpoint.ensure_checkpoint(mine)
    assert list(tmp_path.iterdir()) == [mine]


def test_a_stranger_that_wins_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stranger").mkdir()
    mine = tmp_path / "demo"
    lose_the_race(monkeypatch, mine, winner=tmp_path / "stranger")
    assert command.main(["--output", str(mine)]) == 1
    assert capsys.readouterr().err == "kakeya demo-checkpoint: error: directory not empty\n"


def test_a_missing_library_names_its_cure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for name in ("checkpoint", "tokenizer"):
        monkeypatch.delitem(sys.modules, f"kakeya_worker.demo_checkpoint.{name}", raising=False)
        monkeypatch.delattr(f"kakeya_worker.demo_checkpoint.{name}", raising=False)
    assert command.main([]) == 1
    assert "'tokenizers' is missing; install it with: pip install" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{}", "[]", "not json", '{"model_type": "qwen3"}'])
def test_somebody_elses_directory_is_left_alone(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(content)
    assert command.main(["--output", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"kakeya demo-checkpoint: error: {tmp_path} exists and is not a demo checkpoint\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_command_prints_the_default_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert command.main([]) == 0
    place = tmp_path / "kakeya" / "demo-checkpoint"
    assert capsys.readouterr().out == f"{place}\n"
    assert (place / "config.json").exists()
