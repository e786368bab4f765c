"""What a verifier says of its model: bytes, positions, and the fingerprint that stands for its bits."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kakeya_worker.conformance.tools.checkpoint_files import write_config, write_tensors
from kakeya_worker.conformance.tools.checkpoints import MAX_POSITIONS, Variant
from kakeya_worker.conformance.tools.driving import Logits, open_session
from kakeya_worker.conformance.tools.measure import agree
from kakeya_worker.conformance.tools.subject import Case, Subject, cases
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import ModelFacts, Verifier

_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_ONE_LAYER_SLIDES = ["full_attention", "sliding_attention", "full_attention"]


def test_facts_are_those_of_the_checkpoint_and_the_mode(subject: Subject) -> None:
    config, mode = subject.variant.config, subject.case.mode
    facts = subject.load().facts
    num_heads, head_dim = config["num_hidden_layers"] * config["num_key_value_heads"], subject.variant.head_dim
    head_bytes = head_dim + 2 if mode.kv_dtype == "int8" else head_dim * _ITEM_BYTES[mode.kv_dtype]
    assert facts.backend == subject.case.plugin
    assert (facts.weights, facts.kv_dtype) == (mode.weights, mode.kv_dtype)
    assert facts.exact == (mode.tolerance == "exact")
    assert facts.vocab_size == config["vocab_size"]
    assert facts.max_positions == MAX_POSITIONS
    assert facts.kv_bytes_per_token == 2 * num_heads * head_bytes


def test_the_fingerprint_is_that_of_the_model_wherever_it_lies(subject: Subject, tmp_path: Path) -> None:
    shutil.copytree(subject.directory, tmp_path / "copy")
    here, there = subject.load().facts, subject.load(tmp_path / "copy").facts
    assert here.fingerprint
    assert here.fingerprint == there.fingerprint


def test_an_exact_fingerprint_does_not_depend_on_threads(plugin: str, tmp_path: Path) -> None:
    case = next((case for case in cases(plugin) if case.mode.tolerance == "exact"), None)
    if case is None:
        pytest.skip(f"{plugin} has no exact mode")
    subject = Subject(case, case.variant.write(tmp_path))
    assert subject.load(num_threads=1).facts.fingerprint == subject.load(num_threads=2).facts.fingerprint


def test_other_weights_have_another_fingerprint(subject: Subject, tmp_path: Path) -> None:
    tensors = subject.variant.tensors(subject.case.dtype)
    tensors["model.norm.weight"][0] *= 2
    shutil.copytree(subject.directory, tmp_path / "other")
    write_tensors(tmp_path / "other", tensors, subject.case.dtype)
    assert subject.load(tmp_path / "other").facts.fingerprint != subject.load().facts.fingerprint


@pytest.mark.parametrize("edit", [{"rms_norm_eps": 2e-6}, {"rope_theta": 20_000.0, "rope_parameters": None}], ids=str)
def test_other_numbers_have_another_fingerprint(subject: Subject, tmp_path: Path, edit: dict[str, Any]) -> None:
    shutil.copytree(subject.directory, tmp_path / "other")
    write_config(tmp_path / "other", {**subject.variant.config, "torch_dtype": subject.case.dtype, **edit})
    assert subject.load(tmp_path / "other").facts.fingerprint != subject.load().facts.fingerprint


def test_every_model_and_mode_has_a_fingerprint_of_its_own(plugin: str, tmp_path: Path) -> None:
    """And every model one digest, whatever the mode, by which lanes of other fingerprints are taken; a plugin that
    takes none says none.
    """
    fingerprints: dict[str, Case] = {}
    digests: dict[str, str] = {}
    for case in cases(plugin):
        directory = case.variant.write(tmp_path / case.variant.name)
        facts = Subject(case, directory).load().facts
        assert facts.fingerprint not in fingerprints, f"{case} and {fingerprints[facts.fingerprint]} share one"
        fingerprints[facts.fingerprint] = case
        assert digests.setdefault(case.variant.name, facts.model_digest) == facts.model_digest, case
    assert set(digests.values()) == {""} or len(set(digests.values())) == len(digests)


@pytest.mark.parametrize(
    ("family", "edit", "expected"),
    [
        ("mistral", {"sliding_window": 64}, 64),
        ("mistral", {"sliding_window": 4096}, MAX_POSITIONS),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}, 64),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 3}, MAX_POSITIONS),
        ("qwen2", {"use_sliding_window": False}, MAX_POSITIONS),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 48, "layer_types": _ONE_LAYER_SLIDES}, 48),
        ("qwen3", {"use_sliding_window": False, "sliding_window": 48, "layer_types": None}, MAX_POSITIONS),
    ],
    ids=str,
)
def test_layers_with_a_window_of_their_own_bound_the_positions(
    plugin: str, tmp_path: Path, family: str, edit: dict[str, Any], expected: int
) -> None:
    facts = _facts(plugin, family, tmp_path, edit)
    assert facts.max_positions == expected
    assert ("sliding window" in facts.max_positions_reason) == (expected < MAX_POSITIONS)


def test_weights_may_lie_in_several_files(subject: Subject, tmp_path: Path) -> None:
    subject.variant.write(tmp_path, subject.case.dtype, num_files=3)
    assert agree(
        subject.tolerance, _some_logits(subject.load(tmp_path), subject), _some_logits(subject.load(), subject)
    )


def test_converted_weights_that_are_kept_are_the_same_model(subject: Subject, tmp_path: Path) -> None:
    first, again, without = subject.load(cache=tmp_path), subject.load(cache=tmp_path), subject.load()
    assert first.facts == again.facts == without.facts
    expected = _some_logits(without, subject)
    assert agree(subject.tolerance, _some_logits(first, subject), expected)
    assert agree(subject.tolerance, _some_logits(again, subject), expected)


def _facts(plugin: str, family: str, directory: Path, edit: dict[str, Any]) -> ModelFacts:
    case = next((case for case in cases(plugin) if case.variant.family == family), None)
    if case is None:
        pytest.skip(f"{plugin} does not cover {family}")
    Variant(case.variant.name, {**case.variant.config, **edit}).write(directory)
    return Subject(case, directory).load().facts


def _some_logits(verifier: Verifier, subject: Subject) -> Logits:
    """The logits after a few tokens."""
    geometry = LaneGeometry(sink=2, window=14, chunk=8)
    verifier.allocate(geometry, 1)
    verifier.poison()
    return open_session(verifier, geometry).append(subject.variant.history(30))
