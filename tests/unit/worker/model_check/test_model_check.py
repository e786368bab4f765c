"""`kakeya models check`: figures that are right, verdicts, and what keeps a model from being checked."""

import json
import math
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from kakeya_shared import installed_models
from kakeya_worker import models_command
from kakeya_worker.engine.seams.verifier import ModelFacts
from kakeya_worker.model_check import agreement, model_check
from kakeya_worker.model_check.agreement import Agreement
from kakeya_worker.model_check.model_check import Checked
from kakeya_worker.torch_backend import TorchVerifier


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KAKEYA_WORKER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KAKEYA_WORKER_THREADS", "1")


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    status = models_command.main(["check", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert models_command.main(["check", *words]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    line = said.err.splitlines()[-1]
    assert line.startswith("kakeya models: error: ")
    return line.removeprefix("kakeya models: error: ")


def raises(error: BaseException) -> Any:
    def fail(_settings: Any) -> None:
        raise error

    return fail


def test_figures_are_those_of_the_formulas() -> None:
    generator = np.random.default_rng(1)
    logits, reference = (generator.normal(size=(5, 7)).astype(np.float32) for _ in range(2))
    following = [3, 1, 6, 2]
    summed = Agreement()
    for start, stop in ((0, 2), (2, 5)):
        summed.add(logits[start:stop], reference[start:stop], following[start:stop])
    p, q = (
        np.exp(each.astype(float)) / np.exp(each.astype(float)).sum(-1, keepdims=True) for each in (reference, logits)
    )
    kl = (p * np.log(p / q)).sum(-1)
    assert summed.num_positions == 5
    assert summed.mean_kl == pytest.approx(kl.mean())
    assert summed.max_kl == pytest.approx(kl.max())
    assert summed.top1 == (p.argmax(-1) == q.argmax(-1)).mean()
    surprise = -np.log([q[index, id_] for index, id_ in enumerate(following)]).mean()
    assert summed.perplexities[0] == pytest.approx(math.exp(surprise))


def test_a_logit_that_is_not_finite_is_as_far_as_can_be() -> None:
    summed = Agreement()
    logits = np.zeros((2, 3), np.float32)
    broken = logits.copy()
    broken[1, 2] = np.nan
    summed.add(broken, logits, [0])
    assert summed.max_kl == summed.mean_kl == math.inf
    made = Checked("m", "torch", "int8", summed, 0.02)
    assert not made.is_good
    assert made.document["kl_mean"] is None
    assert made.lines[-1] == "verdict: it loses more than it should (mean KL > 0.02)"
    far = Agreement()
    far.add(np.array([[0, 2000]], np.float32), logits[:1, :2], [0])
    assert far.perplexities[0] == math.inf


def test_a_model_that_loses_little_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = checked(capsys, "kakeya-nano", "--weights", "int8", "--tokens", "100")
    assert status == 0
    assert (said["model"], said["backend"], said["weights"], said["reference"]) == (
        "kakeya-nano", "torch", "int8", "float32",
    )  # fmt: skip
    assert said["num_tokens"] == 100, "of which the last chunk is not a whole one"
    assert 0 < said["kl_mean"] < said["kl_max"] < 0.1
    assert said["top1_agreement"] > 0.9
    assert said["perplexity"] == pytest.approx(said["reference_perplexity"], rel=0.1)


def test_a_model_that_loses_more_than_allowed_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = checked(capsys, "kakeya-nano", "--weights", "int8", "--tokens", "40", "--max-kl", "1e-9")
    assert (status, said["good"]) == (1, False)


def test_a_models_own_numbers_lose_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Over a text of one's own, which may be shorter than asked for; progress and result in words."""
    monkeypatch.setattr(model_check, "_REPORT_SECONDS", -1.0)
    (tmp_path / "own.txt").write_text("Hello! How are you? I am fine.")
    words = ("kakeya-nano", "--weights", "float32", "--text-file", str(tmp_path / "own.txt"), "--max-kl", "0")
    assert models_command.main(["check", *words]) == 0
    said = capsys.readouterr()
    assert "KL a token: mean 0, max 0 nats\nthe same token most likely: 100.0 % of positions" in said.out
    assert said.out.endswith("verdict: good (mean KL <= 0)\n")
    assert "tokens compared" in said.err


def test_what_a_wrong_model_computes_is_seen(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """A fault of the kernel, say: logits of another position."""
    forward = TorchVerifier.forward

    def shifted(self: TorchVerifier, rows: Any) -> None:
        if self.facts.weights == "int8":
            rows = [type(row)(row.lane, row.start, row.token_ids[::-1], row.retention, row.is_scored) for row in rows]
        forward(self, rows)

    monkeypatch.setattr(TorchVerifier, "forward", shifted)
    status, said = checked(capsys, "kakeya-nano", "--weights", "int8", "--tokens", "64")
    assert status == 1
    assert said["kl_mean"] > 0.1


def test_what_cannot_be_checked_is_told(
    tmp_path: Path, random_checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "short").write_text("a")
    (tmp_path / "broken").mkdir()
    assert "holds no readable config.json" in error_of(capsys, str(tmp_path / "broken"))
    assert "brings no tokenizer" in error_of(capsys, str(random_checkpoint))
    assert error_of(capsys, "kakeya-nano", "--text-file", str(tmp_path / "bytes")).endswith("it is no text in UTF-8")
    assert error_of(capsys, "kakeya-nano", "--text-file", str(tmp_path / "none")).endswith("No such file or directory")
    assert error_of(capsys, "kakeya-nano", "--text-file", str(tmp_path / "short")).endswith("fewer than two tokens")
    with monkeypatch.context() as patched:
        patched.setattr(model_check, "load_verifier", raises(MemoryError("no room")))
        assert error_of(capsys, "kakeya-nano") == "kakeya-nano cannot be loaded: no room"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert error_of(capsys, "kakeya-nano", "--tokens", "4").endswith("in float32, and 1,000 are available")
    monkeypatch.setenv("KAKEYA_WORKER_BACKEND", "own")
    assert "no kakeya.verifier plugin is named 'own'" in error_of(capsys, "kakeya-nano")


def test_weights_that_are_cut_off_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "nano"
    shutil.copytree(installed_models.directory("kakeya-nano"), directory)
    whole = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert str(directory) in error_of(capsys, str(directory)) or "safetensors" in capsys.readouterr().err


def test_what_it_needs_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    facts = ModelFacts("torch", "int8", "bfloat16", True, "f", 10, 100, "", 2, tokenizer=Path("tokenizer.json"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(model_check.CheckError, match="needs the module 'tokenizers': pip install tokenizers"):
        model_check._token_ids(facts, "text")
    monkeypatch.setitem(sys.modules, "kakeya_worker.model_check.model_check", None)
    assert "pip install 'kakeya-worker[torch]'" in error_of(capsys, "kakeya-nano")


def test_a_lane_holds_no_more_than_the_model_has_positions() -> None:
    assert agreement.most_tokens(1024) == 1020


def test_flags_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        models_command.main(["check", "kakeya-nano", "--tokens", "1"])
    assert ended.value.code == 2
    assert "--tokens (KAKEYA_MODELS_TOKENS): Input should be greater than or equal to 2" in capsys.readouterr().err
