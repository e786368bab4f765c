"""A model is the same by both doors: as safetensors in the Hub's layout, and as a GGUF file."""

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from structlog.testing import capture_logs

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_shared import installed_models
from kakeya_shared.contract.tokenizer_digest import tokenizer_digest
from kakeya_worker.conformance.tools.checkpoints import VARIANTS, Variant
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models import checkpoint, families
from kakeya_worker.models.gguf.gguf_tensors import GgufTensors
from kakeya_worker.torch_backend import TorchVerifier
from kakeya_worker.torch_backend.exact.kernel import library
from kakeya_worker.torch_backend.exact.kernel.library import CHOICE_VARIABLE
from kakeya_worker.torch_backend.gguf_weights import GgufWeights
from kakeya_worker.torch_backend.safetensors_weights import SafetensorsWeights
from tests import default_mode, gguf_checkpoint, gguf_tokenizer, nano_gguf, ollama_files
from tests.unit.sdk import model_tokenizers

GEOMETRY = LaneGeometry(sink=4, window=64, chunk=32)
NUM_TOKENS = 24


def as_llama_cpp_knows_it(variant: Variant) -> Variant:
    """SmolLM3's files do not say which layers rotate: all but every fourth."""
    if variant.family != "smollm3":
        return variant
    said = {key: value for key, value in variant.config.items() if not key.startswith("no_rope")}
    return replace(variant, config={**said, "num_hidden_layers": 4})


def with_other_head(variant: Variant) -> Variant:
    """Tied to the embedding where it is not, or not where it is."""
    return replace(variant, config={**variant.config, "tie_word_embeddings": not variant.config["tie_word_embeddings"]})


FAMILIES = {variant.name: as_llama_cpp_knows_it(variant) for variant in VARIANTS}
LLAMA, QWEN3, SMOLLM = FAMILIES["llama"], FAMILIES["qwen3"], FAMILIES["smollm"]
# Llama 3's factors are rounded to float32 in the file: its frequencies are not the same numbers.
EXACT = [name for name in FAMILIES if name != "llama"]


def load(place: Path, weights: str, cache: Path | None = None) -> TorchVerifier:
    return TorchVerifier(str(place), weights=weights, kv_dtype="auto", num_threads=1, cache_directory=cache)


def logits(verifier: TorchVerifier, variant: Variant) -> NDArray[np.float32]:
    verifier.allocate(GEOMETRY, 1)
    verifier.forward([Lane(GEOMETRY, 0, sink_window(SessionOptions(), GEOMETRY)).row(variant.history(NUM_TOKENS))])
    return verifier.logits([0])[0]


def same(ours: NDArray[np.float32], theirs: NDArray[np.float32], weights: str) -> bool:
    """Bits of float modes also depend on where a file's tensors lie in memory."""
    largest = float(np.abs(theirs).max())
    return np.array_equal(ours, theirs) if weights == "int8" else np.allclose(ours, theirs, rtol=0, atol=1e-5 * largest)


def written(variant: Variant, path: Path, dtype: str = "float32", kind: str | None = None, **options: Any) -> Path:
    tensors = variant.tensors(dtype)
    return gguf_checkpoint.write(path, variant.config, tensors, kind or gguf_checkpoint.gguf_type(dtype), **options)


def config(path: Path) -> dict[str, Any]:
    return checkpoint.read_config(checkpoint.locate(str(path)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_tensors_are_equal_to_the_bit(tmp_path: Path, name: str, dtype: str) -> None:
    variant = FAMILIES[name]
    of_hub = SafetensorsWeights(variant.write(tmp_path / "hub", dtype))
    of_file = GgufWeights(written(variant, tmp_path / "model.gguf", dtype))
    assert set(of_file.names) == set(of_hub.names)
    for name in of_hub.names:
        shape = tuple(variant.tensors()[name].shape)
        assert torch.equal(of_file(name, shape).float(), of_hub(name, shape).float())
        assert len(shape) == 1 or of_file(name, shape).dtype == of_hub(name, shape).dtype
    assert of_file.num_weights() == of_hub.num_weights()
    assert of_file.dtype == dtype


@pytest.mark.parametrize(("weights", "has_its_head"), [("float32", True), ("int8", True), ("int8", False)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", EXACT)
def test_logits_are_equal_to_the_bit(tmp_path: Path, name: str, dtype: str, weights: str, has_its_head: bool) -> None:
    """Of 24 checkpoints: each of a family also with a table for the head where it has none, or without."""
    variant = FAMILIES[name] if has_its_head else with_other_head(FAMILIES[name])
    of_hub = load(variant.write(tmp_path / "hub", dtype), weights)
    of_file = load(written(variant, tmp_path / "model.gguf", dtype), weights)
    expected = logits(of_hub, variant)
    assert same(logits(of_file, variant), expected, weights)
    assert of_file.facts.vocab_size == of_hub.facts.vocab_size
    assert of_file.facts.max_positions == of_hub.facts.max_positions
    assert np.ptp(expected) > 0.1


def test_float16_is_read_as_it_is(tmp_path: Path) -> None:
    half = {name: tensor.astype(np.float16).astype(np.float32) for name, tensor in QWEN3.tensors().items()}
    by_file = gguf_checkpoint.write(tmp_path / "half.gguf", QWEN3.config, half, "F16")
    by_floats = gguf_checkpoint.write(tmp_path / "whole.gguf", QWEN3.config, half, "F32")
    np.testing.assert_array_equal(logits(load(by_file, "int8"), QWEN3), logits(load(by_floats, "int8"), QWEN3))
    assert GgufWeights(by_file).dtype == "float16"


def test_llama_3s_factors_stretch_its_frequencies(tmp_path: Path) -> None:
    path = written(LLAMA, tmp_path / "model.gguf")
    of_file, of_hub = (families.parse(each) for each in (config(path), dict(LLAMA.config)))
    expected = of_hub.rope_scaling.frequencies(of_hub.rope_theta, of_hub.head_dim)
    found = of_file.rope_scaling.frequencies(of_file.rope_theta, of_file.head_dim)
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    plain = replace(of_hub.rope_scaling, kind="default", factor=1.0)
    assert np.abs(plain.frequencies(of_hub.rope_theta, of_hub.head_dim) / expected).max() > 2
    models = load(path, "float32"), load(LLAMA.write(tmp_path / "hub"), "float32")
    ours, theirs = (logits(model, LLAMA) for model in models)
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())


def test_blocks_are_read_as_the_floats_that_they_stand_for(tmp_path: Path) -> None:
    """Rows are whole blocks, so that permuting them is exact."""
    config = {**SMOLLM.config, "hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 3}
    variant = replace(SMOLLM, config=config)
    kind = gguf.GGMLQuantizationType.Q4_1
    floats = {
        name: gguf.quants.dequantize(gguf.quants.quantize(tensor, kind), kind) if tensor.ndim == 2 else tensor
        for name, tensor in variant.tensors().items()
    }
    permuted = gguf_checkpoint.write(tmp_path / "floats.gguf", config, floats)
    blocks = written(variant, tmp_path / "blocks.gguf", kind="Q4_1")
    for weights in ("float32", "int8"):
        assert same(logits(load(blocks, weights), variant), logits(load(permuted, weights), variant), weights)


def in_blocks(variant: Variant, path: Path, kind: str, **others: str) -> Path:
    return gguf_checkpoint.write(path, variant.config, variant.tensors(), kind, others=others)


WIDE = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
}
WIDE_QWEN3 = replace(QWEN3, config={**QWEN3.config, **WIDE})
WIDE_LLAMA = replace(LLAMA, config={**LLAMA.config, **WIDE})


@pytest.mark.parametrize(
    ("variant", "kind", "others", "tolerance"),
    [
        *((QWEN3, kind, {}, 1e-3) for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")),
        *((WIDE_QWEN3, kind, {}, 1e-3) for kind in ("Q4_K", "Q5_K", "Q6_K")),
        (WIDE_LLAMA, "Q4_K", {"v_proj": "Q6_K", "down_proj": "Q6_K"}, 1e-3),
        (WIDE_LLAMA, "Q4_K", {"v_proj": "Q6_K", "up_proj": "F16"}, 0.1),  # what is no block becomes int8
        (FAMILIES["qwen3-bias"], "F32", {"k_proj": "Q8_0"}, 0.1),
    ],
)
def test_blocks_are_computed_with_as_they_are(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variant: Variant,
    kind: str,
    others: dict[str, str],
    tolerance: float,
) -> None:
    path = in_blocks(variant, tmp_path / "model.gguf", kind, **others)
    by_kernel = load(path, "gguf", tmp_path / "cache")
    assert (by_kernel.facts.weights, by_kernel.facts.exact) == ("gguf", True)
    wide = TorchVerifier(str(path), weights="gguf", kv_dtype="float32", num_threads=1, cache_directory=None)
    floats = logits(load(path, "float32"), variant)
    np.testing.assert_allclose(logits(wide, variant), floats, rtol=0, atol=tolerance * np.abs(floats).max())
    found = logits(by_kernel, variant)
    np.testing.assert_array_equal(found, logits(load(path, "gguf", tmp_path / "cache"), variant))
    monkeypatch.setenv(CHOICE_VARIABLE, "off")
    np.testing.assert_array_equal(found, logits(load(path, "gguf", tmp_path / "cache"), variant))


def test_a_file_with_blocks_runs_as_it_is_where_the_kernel_has_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks, floats = in_blocks(QWEN3, tmp_path / "a.gguf", "Q4_0"), in_blocks(QWEN3, tmp_path / "b.gguf", "F16")
    of_kernels = "gguf" if {"avx512vnni", "avx2"} & {*library.variants()} else default_mode.without_vectors()
    assert load(blocks, "auto").facts.weights == of_kernels
    assert load(floats, "auto").facts.weights == ("int8" if default_mode.is_exact() else "float32")
    for kernel in ("portable", "off"):
        monkeypatch.setenv(CHOICE_VARIABLE, kernel)
        assert load(blocks, "auto").facts.weights == default_mode.without_vectors()
    monkeypatch.delenv(CHOICE_VARIABLE)
    assert len({load(blocks, weights).facts.fingerprint for weights in ("gguf", "int8", "float32")}) == 3
    with pytest.raises(ModelRefused, match="weights 'gguf' cannot run: the checkpoint has none of GGUF's blocks"):
        load(floats, "gguf")


def test_a_block_without_a_number_for_its_scale_is_refused(tmp_path: Path) -> None:
    tensors = QWEN3.tensors()
    tensors["model.layers.1.mlp.down_proj.weight"][5, 40] = np.nan
    with np.errstate(all="ignore"):
        path = gguf_checkpoint.write(tmp_path / "model.gguf", QWEN3.config, tensors, "Q8_0")
    with pytest.raises(ModelRefused, match=r"layers\.1\.mlp\.down_proj\.weight holds infinities"):
        load(path, "gguf")


def test_a_split_model_is_the_same_model(tmp_path: Path) -> None:
    whole = load(written(QWEN3, tmp_path / "whole.gguf"), "int8", tmp_path / "cache")
    tensors = QWEN3.tensors()
    halves = [dict(list(tensors.items())[:9]), dict(list(tensors.items())[9:])]
    for number, half in enumerate(halves):

        def say(writer: gguf.GGUFWriter, number: int = number) -> None:
            writer.add_uint16("split.no", number)
            writer.add_uint16("split.count", 2)

        gguf_checkpoint.write(tmp_path / f"model-{number + 1:05}-of-00002.gguf", QWEN3.config, half, say=say)
    split = load(tmp_path / "model-00001-of-00002.gguf", "int8", tmp_path / "cache")
    np.testing.assert_array_equal(logits(split, QWEN3), logits(whole, QWEN3))


def test_what_int8_made_of_it_is_kept_by_the_models_digest(tmp_path: Path) -> None:
    path = written(SMOLLM, tmp_path / "model.gguf")
    with capture_logs() as first:
        before = logits(load(path, "int8", tmp_path / "cache"), SMOLLM)
    with capture_logs() as second:
        after = logits(load(path, "int8", tmp_path / "cache"), SMOLLM)
    np.testing.assert_array_equal(after, before)
    kept = [any(line["event"].startswith("converted weights kept") for line in lines) for lines in (first, second)]
    assert kept == [True, False]


def test_what_a_file_leaves_out_is_the_familys_or_seen_from_its_tensors(tmp_path: Path) -> None:
    """Files of Ollama's own lack such keys."""
    lacking = ["vocab_size", "embedding_length", "block_count", "feed_forward_length", "attention.key_length"]
    lacking += ["attention.value_length", "rope.dimension_count"]
    whole, bare = written(QWEN3, tmp_path / "whole.gguf"), written(QWEN3, tmp_path / "bare.gguf", left_out=lacking)
    assert families.parse(config(bare)) == families.parse(config(whole))
    further = ["context_length", "rope.freq_base", "attention.layer_norm_rms_epsilon"]
    parsed = families.parse(config(written(QWEN3, tmp_path / "less.gguf", left_out=lacking + further)))
    assert (parsed.max_positions, parsed.rope_theta, parsed.rms_norm_eps) == (32_768, 10_000.0, 1e-6)
    multi_head = FAMILIES["qwen3-bias"]
    path = written(multi_head, tmp_path / "heads.gguf", left_out=("attention.head_count_kv",))
    assert families.parse(config(path)).num_kv_heads == 4


def test_a_window_of_the_layers_own_makes_it_a_mistral(tmp_path: Path) -> None:
    def say(writer: gguf.GGUFWriter) -> None:
        writer.add_uint32("llama.attention.sliding_window", 128)

    parsed = families.parse(config(written(FAMILIES["mistral"], tmp_path / "model.gguf", say=say)))
    assert (parsed.family, parsed.sliding_window) == ("mistral", 128)


def test_parts_that_see_are_left_out_with_a_line(tmp_path: Path) -> None:
    def say(writer: gguf.GGUFWriter) -> None:
        for name in ("v.patch_embd.weight", "mm.0.weight"):
            writer.add_tensor(name, np.ones((2, 32), np.float32))

    path = written(QWEN3, tmp_path / "model.gguf", say=say)
    with capture_logs() as lines:
        found = logits(load(path, "int8"), QWEN3)
    np.testing.assert_array_equal(found, logits(load(written(QWEN3, tmp_path / "plain.gguf"), "int8"), QWEN3))
    (line,) = [line for line in lines if "left out" in line["event"]]
    assert (line["tensors"], line["such_as"]) == (2, "mm.0.weight")


def test_its_tokenizer_is_the_workers(tmp_path: Path) -> None:
    """Grammars read it, and its digest is the one that clients compute of the same file."""
    model_tokenizers.smollm(tmp_path / "hub")
    said = gguf_tokenizer.of_hub(tmp_path / "hub", "smollm")

    def say(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(said["tokenizer.ggml.tokens"])
        writer.add_token_types(said["tokenizer.ggml.token_type"])
        writer.add_token_merges(said["tokenizer.ggml.merges"])

    path = written(QWEN3, tmp_path / "model.gguf", say=say)
    facts = load(path, "float32").facts
    directory = ChatTokenizer(str(path)).directory
    assert facts.tokenizer == directory / "tokenizer.json"
    assert facts.tokenizer_digest == tokenizer_digest(directory) != ""


def test_a_trained_model_is_the_same_model(tmp_path: Path) -> None:
    directory = installed_models.directory("kakeya-nano")
    path = nano_gguf.write(tmp_path / "nano.gguf")
    ids = ChatTokenizer(str(path)).prompt([{"role": "user", "content": "Hello! My train leaves at 7:45."}])
    assert ids == ChatTokenizer(str(directory)).prompt([{"role": "user", "content": "Hello! My train leaves at 7:45."}])
    found = []
    for place in (path, directory):
        verifier = load(place, "int8")
        verifier.allocate(GEOMETRY, 1)
        verifier.forward([Lane(GEOMETRY, 0, sink_window(SessionOptions(), GEOMETRY)).row(tuple(ids))])
        found.append(verifier.logits([0]))
    np.testing.assert_array_equal(found[0], found[1])


def test_a_model_without_a_tokenizer_runs_on_tokens(tmp_path: Path) -> None:
    path = written(QWEN3, tmp_path / "model.gguf")
    with capture_logs() as lines:
        facts = load(path, "float32").facts
    assert (facts.tokenizer, facts.tokenizer_digest) == (None, "")
    (line,) = [line for line in lines if line["log_level"] == "warning"]
    assert line["error"].endswith("model.gguf has no tokenizer that can be used: it holds no tokenizer")


def test_a_model_of_ollamas_store_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    path = written(QWEN3, tmp_path / "model.gguf")
    ollama_files.add(tmp_path / "store", "tiny", path.read_bytes(), "1m", license=b"free")
    found = TorchVerifier("ollama:tiny:1m", weights="int8", kv_dtype="auto", num_threads=1, cache_directory=None)
    np.testing.assert_array_equal(logits(found, QWEN3), logits(load(path, "int8"), QWEN3))
    with pytest.raises(ModelRefused, match=r"has no model 'tiny' \(it has: tiny:1m\)"):
        TorchVerifier("ollama:tiny", weights="int8", kv_dtype="auto", num_threads=1, cache_directory=None)


def _says(key: str, value: Any) -> dict[str, Any]:
    def say(writer: gguf.GGUFWriter) -> None:
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, bool: writer.add_bool}
        add[type(value)](key, value)  # type: ignore[operator]  # the one for its type

    return {"say": say}


def _holds(name: str, *shape: int) -> dict[str, Any]:
    return {"say": lambda writer: writer.add_tensor(name, np.full(shape, 0.5, np.float32))}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (_says("qwen3.expert_count", 8), "qwen3.expert_count, which cannot run"),
        (_says("qwen3.attention.causal", False), "its attention is not causal"),
        (_says("qwen3.rope.scaling.type", "yarn"), "RoPE scaling 'yarn' cannot run"),
        (_says("qwen3.rope.scaling.type", "longrope"), "depends on the length of the history"),
        (_holds("blk.0.attn_sinks.weight", 4), "tensors that no model has that can run: blk.0.attn_sinks.weight"),
        (_holds("rope_freqs.weight", 7), "rope_freqs.weight must hold 16 numbers of type F32"),
        ({"left_out": ("attention.head_count",)}, "it does not say qwen3.attention.head_count"),
        ({"left_out": ("attention.key_length",)} | _says("qwen3.attention.key_length", 64), "its tensors say 32"),
        ({"left_out": ("rope.dimension_count",)} | _says("qwen3.rope.dimension_count", 16), "over a part of each head"),
    ],
)
def test_what_cannot_run_is_refused_by_its_name(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    path = written(QWEN3, tmp_path / "model.gguf", **options)
    with pytest.raises(ModelRefused, match=reason):
        load(path, "float32")


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "gemma3")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelRefused, match="architecture 'gemma3' cannot run; what can: llama, qwen2, qwen3, smollm3"):
        load(tmp_path / "model.gguf", "float32")


def test_a_file_that_is_missing_or_damaged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match=r"none\.gguf is not there"):
        load(tmp_path / "none.gguf", "float32")
    path = written(QWEN3, tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelRefused, match="it is cut off, or damaged"):
        load(path, "float32")
    lacking = {name: tensor for name, tensor in QWEN3.tensors().items() if "layers.1.mlp.up_proj" not in name}
    with pytest.raises(ModelRefused, match=r"lacking\.gguf holds no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        load(gguf_checkpoint.write(tmp_path / "lacking.gguf", QWEN3.config, lacking), "float32")


def test_a_tensor_is_read_at_a_time(tmp_path: Path) -> None:
    """The largest one as float32 and some chunks of blocks are all that lies there at once."""
    numbers = np.ones((40_000, 256), np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_head_count(2)
    blocks = gguf.quants.quantize(numbers, kind)
    for name in ("token_embd", "output", "blk.0.attn_q", "blk.0.ffn_gate"):
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tracemalloc.start()
    tensors = GgufTensors(tmp_path / "model.gguf")
    for name in tensors.names:
        assert tensors.read(name)[0, 0] > 0.99
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.6 * numbers.nbytes  # of queries both orders of their rows lie there for a moment
