"""Checkpoints: a directory in Hugging Face's layout, with config.json beside its weights, or a GGUF file."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from kakeya_shared.contract.tokenizer_digest import TokenizerError, tokenizer_digest
from kakeya_shared.gguf import model_names
from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.tokenizer import directory as tokenizer_of_gguf
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.hub.files import OF_A_CHECKPOINT
from kakeya_worker.models import language_part
from kakeya_worker.models.gguf import gguf_config, gguf_tensors

_log = structlog.get_logger()


def locate(model: str, files: Sequence[str] = OF_A_CHECKPOINT) -> Path:
    """The local place of a model: a directory, a GGUF file, or a hub id's snapshot, downloaded where needed.

    Args:
        files: patterns of those that are downloaded.

    Raises:
        ModelRefused: there is none.
    """
    try:
        file = model_names.file_of(model)
    except GgufError as error:
        raise ModelRefused(str(error)) from error
    if file is not None and not file.is_dir():
        if not file.is_file():
            raise ModelRefused(f"{file} is not there")
        return file
    directory = Path(os.path.expanduser(model))
    if os.path.isdir(directory):  # False, too, for what is no path, where pathlib raises
        return directory
    if directory.is_absolute() or model.startswith((".", "~")):
        raise ModelRefused(f"{model} is not a directory")
    return _snapshot_of_hub(model, files)


def _snapshot_of_hub(model: str, files: Sequence[str]) -> Path:
    # Not before: for a local model the hub's client, which takes long to import, is not needed.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=list(files)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelRefused(
            f"{model!r} is neither a local directory nor a model that the hub hands out: {reason}"
        ) from error


def read_config(place: Path) -> dict[str, Any]:
    """config.json of the language model, or what a GGUF file says in its words. Raises ModelRefused."""
    if place.is_file():
        return gguf_config.config_of(gguf_tensors.opened(place))
    path = place / "config.json"
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise ModelRefused(f"{place} holds no readable config.json") from error
    except (ValueError, RecursionError) as error:
        raise ModelRefused(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelRefused(f"{path} is not a JSON object")
    return language_part.config_of(config)


def digest_tokenizer(place: Path) -> str:
    """`tokenizer_digest` of a checkpoint; "", too, where its tokenizer cannot be read: tokens need none."""
    try:
        return tokenizer_digest(_tokenizer_directory(place))
    except (TokenizerError, GgufError) as error:
        _log.warning("clients cannot tell whether their tokenizer is this model's", error=str(error))
        return ""


def find_tokenizer(place: Path) -> Path | None:
    """A checkpoint's tokenizer.json; None: it brings none, or none that can be read."""
    try:
        path = _tokenizer_directory(place) / "tokenizer.json"
    except GgufError:  # `digest_tokenizer` has told it
        return None
    return path if path.is_file() else None


def _tokenizer_directory(place: Path) -> Path:
    """Raises GgufError."""
    return tokenizer_of_gguf.of_file(place) if place.is_file() else place
