"""The models of this host and what is kept of them, as one document and as tables."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.hub.cached import LocalModel
from kakeya_worker.inventory.caches import Cache, caches
from kakeya_worker.inventory.footprint import Footprint, footprint
from kakeya_worker.inventory.runs_here import RunsHere
from kakeya_worker.models import families
from kakeya_worker.models.gguf.gguf_listing import FILE, OLLAMA
from kakeya_worker.models.local_models import local_models
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.settings import WorkerSettings, cache_directory

_MODELS = ("MODEL", "REVISION", "FAMILY", "QUANTIZATION", "BYTES", "RUNS AS", "WEIGHTS", "LANE", "STATE", "DIRECTORY")
_CACHES = ("CACHE", "BYTES", "CHANGED", "PATH")
Row = tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """A model, and what would become of it here.

    Attributes:
        weights: the type that its weights would have; "" where it does not run, or that is not known.
        takes: None where that is not known.
        backend: that workers here take; "" where it does not run.
    """

    model: LocalModel
    problem: str
    weights: str = ""
    takes: Footprint | None = None
    backend: str = ""


class Lane(TypedDict, total=False):
    """As of `footprint`."""

    sink: int
    window: int | None


def listed(folders: Sequence[Path]) -> list[Listed]:
    """Raises NotADirectoryError, PluginError, ModuleNotFoundError."""
    here = RunsHere()
    return [judged(model, here) for model in local_models(folders)]


def kept() -> list[Cache]:
    """Raises StartError, GgufError: there is no home directory."""
    given = os.environ.get(WorkerSettings.variable("cache_dir"))
    return list(caches(cache_directory(Path(given) if given else None)))


def document(models: Sequence[Listed], kept: Sequence[Cache]) -> dict[str, Any]:
    """For programs: counts in bytes and tokens, times in ISO 8601 UTC."""
    return {
        "models": [_model_document(each) for each in models],
        "caches": [
            {
                "kind": each.kind,
                "path": str(each.path),
                "num_bytes": each.num_bytes,
                "changed": each.changed.isoformat(timespec="seconds"),
            }
            for each in kept
        ],
    }


def tables(models: Sequence[Listed], kept: Sequence[Cache]) -> list[str]:
    """For people: a line for each model, and one for each thing that is kept."""
    rows = [_MODELS, *map(_model_row, models)]
    others = [_CACHES, *map(_cache_row, kept)]
    return [*_aligned(rows), *(["", *_aligned(others)] if kept else [])]


def judged(model: LocalModel, here: RunsHere, **lane: Unpack[Lane]) -> Listed:
    """What would become of it, with such a lane."""
    if model.problem or not model.config:
        return Listed(model, model.problem)
    try:
        config: ModelConfig = families.parse(dict(model.config))
    except ModelRefused as error:
        return Listed(model, str(error))
    weights, problem = here.weights(model.config, has_blocks=_has_blocks(model))
    takes = footprint(config, weights, model.num_bytes, **lane) if weights else None
    return Listed(model, problem, weights, takes, "" if problem else here.backend)


def _has_blocks(model: LocalModel) -> bool:
    return model.revision in (FILE, OLLAMA) and model.quantization not in ("", "F32", "F16", "BF16")


def _model_document(each: Listed) -> dict[str, Any]:
    model, takes = each.model, each.takes
    return {
        "model": model.model,
        "revision": model.revision,
        "family": model.family or None,
        "quantization": model.quantization or None,
        "num_bytes": model.num_bytes,
        "directory": str(model.directory),
        "problem": each.problem or None,
        "note": model.note or None,
        "backend": each.backend or None,
        "weights": each.weights or None,
        "memory": takes and {"weights_bytes": takes.weights, "lane_bytes": takes.lane, "window": takes.window},
    }


def _model_row(each: Listed) -> Row:
    model, takes = each.model, each.takes
    return (
        model.model,
        model.revision,
        model.family or "-",
        model.quantization or "-",
        f"{model.num_bytes:,}",
        each.weights or "-",
        f"{takes.weights:,}" if takes else "-",
        f"{takes.lane:,}" if takes else "-",
        each.problem or model.note or "whole",
        str(model.directory),
    )


def _cache_row(each: Cache) -> Row:
    return each.kind, f"{each.num_bytes:,}", f"{each.changed:%Y-%m-%d %H:%M}Z", str(each.path)


def _aligned(rows: Sequence[Row]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
