"""The models on this host, wherever they lie: what `kakeya models list` shows, and `kakeya plan` asks for."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kakeya_shared import installed_models
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.hub import cached
from kakeya_worker.hub.cached import LocalModel
from kakeya_worker.models import checkpoint, families
from kakeya_worker.models.gguf import gguf_listing

_CONFIG: Final = "config.json"


def local_models(folders: Sequence[Path] = ()) -> Iterator[LocalModel]:
    """Packages, the hub's cache, Ollama's store, and GGUF files below folders; nothing is asked of a network.

    Raises:
        NotADirectoryError: a folder is none.
    """
    for folder in folders:
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is no directory")
    yield from map(_judged, cached.local_models())
    yield from gguf_listing.in_ollamas_store()
    for folder in folders:
        yield from gguf_listing.in_folder(folder)


def local_model(model: str) -> LocalModel:
    """The one that a worker's `--model` names; of one of the hub that is not here, config.json is brought.

    Raises:
        ModelRefused: there is none.
        PluginError: it is installed, and its package is broken.
    """
    place = checkpoint.locate(installed_models.resolve(model), [_CONFIG])
    if place.is_file():
        return replace(gguf_listing.of_file(place), model=model)
    num_bytes = sum(file.stat().st_size for file in place.iterdir() if file.is_file())
    return _judged(LocalModel(model, "", num_bytes, place, ""))


def _judged(model: LocalModel) -> LocalModel:
    """With what config.json says of it, and whether a worker can load such a model."""
    if model.problem:
        return model
    try:
        config = checkpoint.read_config(model.directory)
    except ModelRefused as error:
        return replace(model, problem=str(error))
    family, said = str(config.get("model_type") or ""), config.get("quantization") or config.get("quantization_config")
    bits = said.get("bits") if isinstance(said, dict) else None
    quantization = f"{bits}bit" if bits else str(config.get("dtype") or config.get("torch_dtype") or "")
    problem = "" if family in families.names() else f"model_type {family!r} cannot run"
    return replace(model, family=family, quantization=quantization, problem=problem, config=config)
