"""kakeya-nano, a trained model, as one GGUF file."""

import json
from pathlib import Path

import gguf
from safetensors.torch import load_file

from kakeya_shared import installed_models
from tests import gguf_checkpoint, gguf_tokenizer


def write(path: Path, kind: str = "BF16") -> Path:
    """Writes it with its tokenizer and chat template; returns `path`."""
    directory = installed_models.directory("kakeya-nano")
    said = gguf_tokenizer.of_hub(directory, "qwen2")
    template = json.loads((directory / "tokenizer_config.json").read_text())["chat_template"]

    def say(writer: gguf.GGUFWriter) -> None:
        tokens = said["tokenizer.ggml.tokens"]
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(tokens)
        writer.add_token_types(said["tokenizer.ggml.token_type"])
        writer.add_token_merges(said["tokenizer.ggml.merges"])
        writer.add_eos_token_id(tokens.index("<|im_end|>"))
        writer.add_pad_token_id(tokens.index("<|endoftext|>"))
        writer.add_chat_template(template)

    tensors = {name: tensor.float().numpy() for name, tensor in load_file(directory / "model.safetensors").items()}
    config = json.loads((directory / "config.json").read_text())
    return gguf_checkpoint.write(path, config, tensors, kind, say=say)
