"""Writes a Qwen3 checkpoint as a GGUF file; imported where `gguf` is found."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf  # in an environment of its own
import numpy as np
from safetensors import deserialize

_ARCHITECTURE = gguf.MODEL_ARCH.QWEN3


def write(checkpoint: Path, matrix_type: str, target: Path) -> None:
    """Matrices, embedding and head among them, are written in F32 or Q8_0; vectors stay float32."""
    config = json.loads((checkpoint / "config.json").read_text())
    types = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(target, gguf.MODEL_ARCH_NAMES[_ARCHITECTURE])
    _add_config(writer, config)
    for name, tensor in _tensors(checkpoint, config["num_hidden_layers"]):
        kind = types[matrix_type] if tensor.ndim == 2 else types.F32
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
    """GGUF's name and the float32 values of each tensor; NumPy has no bfloat16, which is why `gguf` reads them."""
    names = gguf.get_tensor_name_map(_ARCHITECTURE, num_layers)
    for name, tensor in deserialize((checkpoint / "model.safetensors").read_bytes()):  # type: ignore[no-untyped-call]
        gguf_name = names.get_name(name, try_suffixes=(".weight",))
        if gguf_name is None:
            raise LookupError(f"{checkpoint}: GGUF has no place for the tensor {name}")
        content = np.frombuffer(tensor["data"], dtype=np.uint8).reshape(*tensor["shape"][:-1], -1)
        yield gguf_name, gguf.quants.dequantize(content, gguf.GGMLQuantizationType[tensor["dtype"]])
