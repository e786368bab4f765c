"""What our reader finds in a file is what the package `gguf`, which wrote it, finds."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from kakeya_shared.gguf.gguf_file import GgufFile

QUANTIZED = gguf.GGMLQuantizationType.Q8_0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_block_count(2)
    writer.add_rope_freq_base(500_000.0)
    writer.add_token_list(["a", "漢字", "<|end|>"])
    writer.add_token_types([1, 1, 3])
    writer.add_add_bos_token(True)
    generator = np.random.default_rng(1)
    for number, shape in enumerate([(5,), (3, 64), (2, 3, 32)]):
        numbers = generator.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(f"float{number}", numbers)
        if shape[-1] % 32 == 0:
            writer.add_tensor(f"q{number}", gguf.quants.quantize(numbers, QUANTIZED), raw_dtype=QUANTIZED)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "model.gguf"


def test_both_find_the_same(path: Path) -> None:
    ours, theirs = GgufFile(path), gguf.GGUFReader(path)
    assert ours.metadata.text("general.architecture") == "llama"
    assert ours.metadata.integer("llama.block_count") == 2
    assert ours.metadata.number("llama.rope.freq_base", 1.0) == 500_000.0
    assert list(ours.metadata.texts("tokenizer.ggml.tokens")) == ["a", "漢字", "<|end|>"]
    assert list(ours.metadata.numbers("tokenizer.ggml.token_type") or []) == [1, 1, 3]
    assert ours.metadata.flag("tokenizer.ggml.add_bos_token", default=False)
    assert ours.tensors.keys() == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name][1]
        assert found.shape == tuple(int(number) for number in reversed(tensor.shape))
        assert found.type.name == tensor.tensor_type.name
        assert bytes(ours.bytes_of(tensor.name)) == tensor.data.tobytes()
