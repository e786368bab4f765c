"""The checkpoint directory: config, weights, tokenizer and the texts it was trained on."""

import json
import os
import shutil
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from safetensors.numpy import save
from tokenizers import Tokenizer

from kakeya_worker.demo_checkpoint import tokenizer as bpe
from kakeya_worker.demo_checkpoint.shape import model_config
from kakeya_worker.demo_checkpoint.weights import make_weights

# Raised whenever anything in the directory changes, so that a machine's old one is replaced.
RECIPE = 1
_RECIPE_KEY = "kakeya_demo_recipe"


class NotADemoCheckpoint(Exception):
    """The output directory holds something else, which is left alone."""


def default_directory() -> Path:
    """Where the demo checkpoint lives unless somebody says otherwise (XDG data directory)."""
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "kakeya" / "demo-checkpoint"


def ensure_checkpoint(directory: Path) -> bool:
    """Makes the checkpoint unless the directory already holds it; other processes see all of it or nothing.

    Returns:
        Whether it was made now.

    Raises:
        NotADemoCheckpoint: the path exists and is something else.
        OSError: it cannot be written.
    """
    if _recipe(directory) == RECIPE:
        return False
    if _recipe(directory) is None and directory.exists() and not _is_empty_directory(directory):
        raise NotADemoCheckpoint(f"{directory} exists and is not a demo checkpoint")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        _write(made)
        _swap(made, directory, Path(scratch) / "old")
    return True


def _recipe(directory: Path) -> int | None:
    try:
        config = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError):
        return None
    recipe = config.get(_RECIPE_KEY) if isinstance(config, dict) else None
    return recipe if isinstance(recipe, int) else None


def _is_empty_directory(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _swap(made: Path, directory: Path, old: Path) -> None:
    if directory.exists():
        directory.rename(old)
    try:
        made.rename(directory)
    except OSError:
        if _recipe(directory) != RECIPE:  # else another process made the same one meanwhile
            raise


def _write(directory: Path) -> None:
    texts = resources.files(__package__) / "texts"
    with resources.as_file(texts) as source:
        shutil.copytree(source, directory / "texts")
    sentences = [
        sentence for path in sorted((directory / "texts").iterdir()) for sentence in path.read_text().splitlines()
    ]
    tokenizer = bpe.train_tokenizer(sentences)
    tokenizer.save(str(directory / "tokenizer.json"))
    _write_json(directory / "tokenizer_config.json", bpe.tokenizer_config())
    (directory / "model.safetensors").write_bytes(save(make_weights(), metadata={"format": "pt"}))
    _write_configs(directory, tokenizer)


def _write_configs(directory: Path, tokenizer: Tokenizer) -> None:
    ids = tokenizer.get_vocab()
    end_of_turn, end_of_text = ids[bpe.END_OF_TURN], ids[bpe.END_OF_TEXT]
    generation = {"do_sample": False, "eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text}
    _write_json(directory / "generation_config.json", generation)
    _write_json(directory / "config.json", model_config(eos_token_id=end_of_turn) | {_RECIPE_KEY: RECIPE})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
