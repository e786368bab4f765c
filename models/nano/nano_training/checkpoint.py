"""The checkpoint directory, in the form of the Hugging Face Hub."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor

from nano_training.shape import model_config
from nano_training.tokenizer import END_OF_TEXT, END_OF_TURN, tokenizer_config


def write_checkpoint(directory: Path, tokenizer: Tokenizer, weights: dict[str, Tensor]) -> None:
    """Writes config, weights in bfloat16 and tokenizer; what else the directory holds stays. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    ids = tokenizer.get_vocab()
    end_of_turn, end_of_text = ids[END_OF_TURN], ids[END_OF_TEXT]
    generation = {"do_sample": False, "eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text}
    _write_json(directory / "config.json", model_config(eos_token_id=end_of_turn))
    _write_json(directory / "generation_config.json", generation)
    _write_json(directory / "tokenizer_config.json", tokenizer_config())
    tokenizer.save(str(directory / "tokenizer.json"))
    # A tied head is not stored: config.json says that it is the embedding.
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous() for name, tensor in weights.items() if name != "lm_head.weight"
    }
    (directory / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
