"""Models with the tokenizer of another, and with more or fewer layers."""

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

_LAYER = "model.layers.{}."
_OUT = ("self_attn.o_proj.weight", "mlp.down_proj.weight")  # what a layer adds comes through these


def save_fewer_layers(checkpoint: Path, directory: Path, num_layers: int) -> Path:
    """A checkpoint of the first layers of another; the weights of the others are in its file, and not read."""
    shutil.copytree(checkpoint, directory)
    assert 0 < num_layers <= _set_layers(directory, num_layers)
    return directory


def save_more_layers(checkpoint: Path, directory: Path, num_layers: int) -> Path:
    """A checkpoint that says what another says and takes longer: its further layers add nothing."""
    shutil.copytree(checkpoint, directory)
    tensors = load_file(directory / "model.safetensors")
    for layer in range(_set_layers(directory, num_layers), num_layers):
        for name in [name for name in tensors if name.startswith(_LAYER.format(0))]:
            part = name.removeprefix(_LAYER.format(0))
            tensors[_LAYER.format(layer) + part] = tensors[name] * 0 if part in _OUT else tensors[name].clone()
    save_file(tensors, directory / "model.safetensors")
    return directory


def _set_layers(directory: Path, num_layers: int) -> int:
    """How many there were."""
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "num_hidden_layers": num_layers}))
    return int(config["num_hidden_layers"])
