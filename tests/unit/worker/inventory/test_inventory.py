"""What `kakeya models list` says of models beside where they are: how they would run, and in how much memory."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Any

import pytest
import structlog
from huggingface_hub import constants
from safetensors import safe_open

from kakeya_shared import installed_models, plugins
from kakeya_shared.gguf import gguf_file, header
from kakeya_worker import models_command, sizing
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.inventory.caches import caches
from kakeya_worker.inventory.footprint import footprint
from kakeya_worker.inventory.runs_here import RunsHere
from kakeya_worker.models import checkpoint, families
from kakeya_worker.models.gguf import gguf_config, gguf_listing, gguf_tensors
from kakeya_worker.torch_backend import TorchVerifier
from tests.gguf_bytes import Tensor, gguf

QWEN3: dict[str, Any] = {
    "general.architecture": "qwen3",
    "general.file_type": 15,
    "qwen3.block_count": 2,
    "qwen3.context_length": 4096,
    "qwen3.embedding_length": 64,
    "qwen3.feed_forward_length": 96,
    "qwen3.attention.head_count": 4,
    "qwen3.attention.head_count_kv": 2,
    "qwen3.attention.key_length": 32,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
}
VOCABULARY = [f"<{number}>" for number in range(300)]


@pytest.fixture(autouse=True)
def no_other_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("KAKEYA_WORKER_")]:
        monkeypatch.delenv(name)


def model(num_tensors: int, **said: Any) -> bytes:
    """A file of so many tensors, none of which is as large as the model's."""
    tensors = [Tensor(f"t{number}", [8], 0, bytes(32)) for number in range(num_tensors)]
    return gguf(QWEN3 | said | {"tokenizer.ggml.tokens": VOCABULARY}, tensors)


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert models_command.main(["list", "--json", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_numbers_are_those_that_a_worker_comes_to(capsys: pytest.CaptureFixture[str]) -> None:
    """By the checkpoint's own tensors, and by the slab of a worker that is told nothing of sizes."""
    (nano,) = listed(capsys)["models"]
    directory = installed_models.directory("kakeya-nano")
    with safe_open(directory / "model.safetensors", "np") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118 -- it is no dict
    verifier = TorchVerifier(str(directory), weights="auto", kv_dtype="auto", num_threads=1, cache_directory=None)
    slab = sizing.plan(verifier.facts, sink=4, window=None, chunk=32, num_lanes=None, slab_bytes=None)
    assert (nano["backend"], nano["weights"]) == ("torch", verifier.facts.weights)
    item_bytes = {"int8": 1 + 2 / 64, "bfloat16": 2, "float32": 4}[verifier.facts.weights]
    num_weights = sum(prod(shape) for shape in shapes if len(shape) == 2)
    assert nano["memory"]["weights_bytes"] == int(item_bytes * num_weights)
    engine = Engine(verifier, slab.geometry, 1, 128)
    assert nano["memory"]["lane_bytes"] == engine.lanes.totals().lane_bytes
    assert nano["memory"]["window"] == slab.geometry.window


def test_with_a_draft_model_each_lane_has_one_of_it_beside(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (alone,) = listed(capsys)["models"]
    (both,) = listed(capsys, "--draft-model", "kakeya-nano")["models"]
    assert both["memory"]["lane_bytes"] == 2 * alone["memory"]["lane_bytes"]
    assert both["memory"]["weights_bytes"] == 2 * alone["memory"]["weights_bytes"]
    monkeypatch.setenv("KAKEYA_MODELS_DRAFT_MODEL", "kakeya-nano")
    assert listed(capsys)["models"] == [both]
    assert models_command.main(["list", "--draft-model", "/nowhere"]) == 1
    assert "/nowhere is not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("num_tensors", "said", "tied"),
    [
        (2 * 11 + 2, {}, True),
        (2 * 11 + 3, {}, False),
        (2 * 9 + 2, {"general.architecture": "llama"}, True),
        (2 * 12 + 3, {"general.architecture": "qwen2"}, False),
    ],
)
def test_a_gguf_file_tells_its_size_by_its_first_keys_and_how_many_tensors_it_has(
    tmp_path: Path, num_tensors: int, said: dict[str, Any], tied: bool
) -> None:
    architecture = said.get("general.architecture", "qwen3")
    keys = {key.replace("qwen3.", f"{architecture}."): value for key, value in QWEN3.items()} | said
    tensors = [Tensor(f"t{number}", [8], 0, bytes(32)) for number in range(num_tensors)]
    (tmp_path / "a.gguf").write_bytes(gguf(keys | {"tokenizer.ggml.tokens": VOCABULARY}, tensors))
    (found,) = gguf_listing.in_folder(tmp_path)
    config = families.parse(dict(found.config))
    assert (config.tied_head, config.vocab_size, config.num_layers) == (tied, 300, 2)
    assert (config.head_dim, config.num_kv_heads, config.max_positions) == (32, 2, 4096)
    of_layers = 2 * (2 * 64 * (4 + 2) * 32 + 3 * 64 * 96)
    assert config.num_weights == of_layers + (1 if tied else 2) * 300 * 64


def test_where_the_first_keys_do_not_tell_it_the_whole_header_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A llama with one tensor more has a head of its own, or RoPE's factors; Ollama's own files leave keys out."""
    whole = {"model_type": "llama", "vocab_size": 1}
    monkeypatch.setattr(gguf_config, "config_of", lambda _file: whole)
    monkeypatch.setattr(gguf_tensors, "opened", lambda path: path)
    for name, said, num_tensors in (
        ("llama", {"general.architecture": "llama"}, 2 * 9 + 3),
        ("lacking", {"qwen3.context_length": None}, 2 * 11 + 2),
        ("odd", {}, 2 * 11 + 9),
    ):
        given = {key: value for key, value in (QWEN3 | said).items() if value is not None}
        architecture = given["general.architecture"]
        keys = {key.replace("qwen3.", f"{architecture}."): value for key, value in given.items()}
        tensors = [Tensor(f"t{number}", [8], 0, bytes(32)) for number in range(num_tensors)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.gguf").write_bytes(gguf(keys | {"tokenizer.ggml.tokens": VOCABULARY}, tensors))
        (found,) = gguf_listing.in_folder(tmp_path / name)
        assert found.config == whole, name

    def refuse(_path: Path) -> Any:
        raise ModelRefused("damaged")

    monkeypatch.setattr(gguf_tensors, "opened", refuse)
    (found,) = gguf_listing.in_folder(tmp_path / "odd")
    assert (found.config, found.problem) == ({}, "")


def test_of_fifty_files_some_kilobytes_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a vocabulary nor what stands behind it: a file is as long as its disk, and there may be many."""
    most_bytes = 2048
    large = [f"<{number:0100}>" for number in range(1000)]
    tensors = [Tensor(f"t{number}", [8], 0, bytes(32)) for number in range(2 * 11 + 2)]
    content = gguf(QWEN3 | {"tokenizer.ggml.tokens": large}, tensors)
    assert len(content) > 40 * most_bytes
    (tmp_path / "many").mkdir()
    for number in range(50):
        (tmp_path / "many" / f"model-{number:02}.gguf").write_bytes(content)
    looked_at = []

    def beginning(path: Path) -> memoryview:
        looked_at.append(path)
        return gguf_file.mapped(path)[:most_bytes]

    monkeypatch.setattr(gguf_listing, "mapped", beginning)
    monkeypatch.setattr(gguf_tensors, "opened", lambda _path: pytest.fail("a whole header is read"))
    models = [
        each for each in listed(capsys, "--folder", str(tmp_path / "many"))["models"] if each["revision"] == "file"
    ]
    assert len(models) == len(looked_at) == 50
    assert {each["problem"] for each in models} == {None}
    assert {each["memory"]["weights_bytes"] for each in models} == {models[0]["memory"]["weights_bytes"]}


def test_what_is_kept_is_told_with_its_size_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "cache" / "kakeya" / "int8" / "abc.kakeya-packed-1.safetensors"
    folder = tmp_path / "cache" / "kakeya" / "tokenizers" / "def"
    for path, size in ((packed, 70), (folder / "tokenizer.json", 20), (folder / "generation_config.json", 3)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (packed.parent / "abc.lock").touch()
    (folder.parent / "empty").mkdir()
    first, empty_or_def, _ = found = list(caches(tmp_path / "cache" / "kakeya"))
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert first == ("int8 weights", packed, 70, moment)
    assert empty_or_def == ("tokenizer", folder, 23, moment)
    told = listed(capsys)["caches"]
    assert [each["path"] for each in told] == [str(each.path) for each in found]
    assert (told[0]["num_bytes"], told[0]["changed"]) == (70, "2023-11-14T22:13:20+00:00")
    assert models_command.main(["list"]) == 0
    assert "int8 weights  70     2023-11-14 22:13Z" in capsys.readouterr().out


def test_a_cache_may_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own" / "int8").mkdir(parents=True)
    (tmp_path / "own" / "int8" / "a.safetensors").touch()
    monkeypatch.setenv("KAKEYA_WORKER_CACHE_DIR", str(tmp_path / "own"))
    assert [each["path"] for each in listed(capsys)["caches"]] == [str(tmp_path / "own" / "int8" / "a.safetensors")]


def test_without_a_home_the_list_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", str)
    assert models_command.main(["list"]) == 1
    assert "cannot be listed: there is no home directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environment", "config", "expected"),
    [
        ({"KAKEYA_WORKER_WEIGHTS": "bfloat16"}, {}, ("bfloat16", "")),
        ({"KAKEYA_WORKER_WEIGHTS": "float32"}, {"dtype": "bfloat16"}, ("float32", "")),
        ({"KAKEYA_WORKER_WEIGHTS": "gguf"}, {"gguf": True}, ("gguf", "")),
        ({"KAKEYA_WORKER_WEIGHTS": "gguf"}, {}, ("", "weights 'gguf' cannot run: the checkpoint has none")),
        ({"KAKEYA_WORKER_WEIGHTS": "int3"}, {}, ("", "weights 'int3' cannot run; what can: ")),
        ({}, {"quantization": {"bits": 4}}, ("", "weights that are quantized already do not run with --backend torch")),
        ({"KAKEYA_WORKER_BACKEND": "mlx"}, {"quantization": {"bits": 4}}, ("", "")),
        ({"KAKEYA_WORKER_BACKEND": "own"}, {}, ("", "no kakeya.verifier plugin is named 'own'")),
    ],
)
def test_how_a_model_would_run(environment: dict[str, str], config: dict[str, Any], expected: tuple[str, str]) -> None:
    weights, problem = RunsHere(environment).weights(config, has_blocks="gguf" in config)
    assert weights == expected[0]
    assert problem.startswith(expected[1])
    assert bool(problem) == bool(expected[1])


def test_a_backend_need_not_say_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(plugins, "load", lambda *_, **__: object)
    assert RunsHere({}).weights({"dtype": "float16"}, has_blocks=False) == ("", "")


@pytest.fixture
def logged() -> Iterator[None]:
    before = structlog.get_config()
    yield
    assert structlog.get_config() == before, "who logs afterwards does it as before"


@pytest.mark.usefixtures("logged")
def test_what_cannot_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "odd.gguf").write_bytes(model(2 * 11 + 2, **{"qwen3.attention.head_count_kv": 3}))
    (tmp_path / "many" / "tiny.gguf").write_bytes(model(2 * 11 + 2, **{"qwen3.context_length": 3}))
    _, odd, tiny = listed(capsys, "--folder", str(tmp_path / "many"))["models"]
    assert odd["problem"] == "config.json: 4 heads cannot share 3 KV heads evenly"
    assert (odd["backend"], odd["weights"], odd["memory"]) == (None, None, None)
    assert tiny["memory"] is None, "no lane of four sinks fits three positions"
    assert models_command.main(["list", "--folder", str(tmp_path / "many")]) == 0
    assert "heads cannot share" in capsys.readouterr().out


def test_a_footprint_follows_the_type_of_the_weights() -> None:
    config = families.parse(checkpoint.read_config(installed_models.directory("kakeya-nano")))
    whole, half, exact = (footprint(config, weights, 123) for weights in ("float32", "bfloat16", "int8"))
    as_it_is = footprint(config, "gguf", 123)
    assert as_it_is
    assert whole
    assert half
    assert exact
    assert whole.weights == 2 * half.weights == 4 * config.num_weights
    assert exact.weights == config.num_weights + config.num_weights // 64 * 2, "a scale for each 64"
    assert as_it_is.weights == 123
    assert whole.lane == 2 * half.lane == 2 * exact.lane == 2 * as_it_is.lane
    narrow = footprint(config, "int8", 123, kv_dtype="int8")
    assert narrow
    assert narrow.token == exact.token * (config.head_dim + 2) // (2 * config.head_dim)
    assert narrow.weights == exact.weights


def test_a_list_that_is_none_has_no_length() -> None:
    whole = gguf({"general.architecture": "qwen3", "tokenizer.ggml.tokens": 7})
    assert header.beginning(memoryview(whole), "tokenizer.ggml.tokens").num_listed == 0
