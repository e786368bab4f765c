"""Finds a model: a directory, an installed one by its name, or one of the Hub."""

import os
from pathlib import Path

from kakeya_shared import installed_models
from kakeya_shared.plugins import PluginError
from kakeya_worker.quality.failure import CannotMeasure, missing

_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")


def locate(name: str) -> Path:
    """The directory of a model with its tokenizer; downloads it from the Hub where needed. Raises CannotMeasure."""
    try:
        model = installed_models.resolve(name)
    except PluginError as error:
        raise CannotMeasure(str(error)) from error
    directory = Path(os.path.expanduser(model))
    if os.path.isdir(directory):  # False, too, for what is no path, where pathlib raises
        return directory
    if directory.is_absolute() or model.startswith((".", "~")):
        raise CannotMeasure(f"{name} is not a directory")
    if "/" not in model:
        known = ", ".join(installed_models.names()) or "none"
        raise CannotMeasure(f"{name!r} is neither a directory nor an installed model (installed: {known})")
    return _download(model)


def _download(hub_id: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ModuleNotFoundError as error:
        raise missing(error.name) from error
    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(_FILES)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CannotMeasure(f"{hub_id!r} is neither a directory, an installed model nor to be had: {reason}") from error
