"""Writes a Qwen3 checkpoint as a GGUF file; run by the Python of llama.cpp's environment.

python llama_cpp_gguf.py CHECKPOINT F32|Q8_0 GGUF
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf  # type: ignore[import-not-found]  # in the benchmark's environment only
import numpy as np
from safetensors import deserialize

ARCHITECTURE = gguf.MODEL_ARCH.QWEN3


def write(checkpoint: Path, matrix_type: gguf.GGMLQuantizationType, target: Path) -> None:
    """Matrices, embedding and head among them, are written in `matrix_type`; vectors stay float32."""
    config = json.loads((checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(target, gguf.MODEL_ARCH_NAMES[ARCHITECTURE])
    _add_config(writer, config)
    for name, tensor in _tensors(checkpoint, config["num_hidden_layers"]):
        kind = matrix_type if tensor.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_config(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    _add_vocabulary(writer, config["vocab_size"])


def _add_vocabulary(writer: gguf.GGUFWriter, vocab_size: int) -> None:
    """A token's text is its id: "<17>".

    Tokens are ids here, but llama.cpp's server aborts at the first token of a file without a vocabulary ("no_vocab").
    RWKV's kind needs a list of texts alone and makes no token the beginning or the end of sequence by default.
    SentencePiece's makes those of ids 1 and 2, and the server then never chooses token 2 when it is told to ignore the
    end.
    """
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([f"<{token_id}>" for token_id in range(vocab_size)])


def _tensors(checkpoint: Path, num_layers: int) -> Iterator[tuple[str, np.ndarray]]:
    """GGUF's name of each tensor, and the tensor."""
    names = gguf.get_tensor_name_map(ARCHITECTURE, num_layers)
    for name, tensor in _loaded(checkpoint / "model.safetensors"):
        gguf_name = names.get_name(name, try_suffixes=(".weight",))
        if gguf_name is None:
            raise SystemExit(f"{checkpoint}: GGUF has no place for the tensor {name}")
        yield gguf_name, tensor


def _loaded(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Name and float32 values of each tensor; NumPy has no bfloat16, which is why `gguf` reads them."""
    for name, tensor in deserialize(path.read_bytes()):
        content = np.frombuffer(tensor["data"], dtype=np.uint8).reshape(*tensor["shape"][:-1], -1)
        yield name, gguf.quants.dequantize(content, gguf.GGMLQuantizationType[tensor["dtype"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("matrix_type", choices=["F32", "Q8_0"])
    parser.add_argument("gguf", type=Path)
    arguments = parser.parse_args()
    write(arguments.checkpoint, gguf.GGMLQuantizationType[arguments.matrix_type], arguments.gguf)


if __name__ == "__main__":
    main()
