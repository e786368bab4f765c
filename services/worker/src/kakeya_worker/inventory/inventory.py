"""The models of this host and what is kept of them, as one document and as tables."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.hub.cached import LocalModel
from kakeya_worker.inventory.caches import Cache, caches
from kakeya_worker.inventory.footprint import Draft, Footprint, draft_of, footprint
from kakeya_worker.inventory.runs_here import RunsHere
from kakeya_worker.models import families
from kakeya_worker.models.gguf.gguf_listing import FILE, OLLAMA
from kakeya_worker.models.local_models import local_model, local_models
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
    draft: Draft | None


def listed(folders: Sequence[Path], draft_model: str = "") -> list[Listed]:
    """With lanes of a draft model beside their own, if there is one. Raises NotADirectoryError, PluginError,
    ModuleNotFoundError, ModelRefused.
    """
    here, draft = RunsHere(), draft_named(draft_model)
    return [judged(model, here, draft=draft) for model in local_models(folders)]


def draft_named(model: str) -> Draft | None:
    """What a draft model takes in each worker here; "" names none. Raises as `local_model`; ModelRefused: it does not
    run here.
    """
    if not model:
        return None
    here = RunsHere({name: os.environ.get(name, "") for name in [WorkerSettings.variable("backend")]})
    found = local_model(model)
    config, weights, problem = _in_short(found, here)
    if problem or config is None or not weights:
        raise ModelRefused(f"{model} does not run here: {problem or 'the backend does not say how it holds it'}")
    return draft_of(config, weights, found.num_bytes)


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
    config, weights, problem = _in_short(model, here)
    if config is None:
        return Listed(model, problem)
    takes = footprint(config, weights, model.num_bytes, kv_dtype=here.kv_dtype, **lane) if weights else None
    return Listed(model, problem, weights, takes, "" if problem else here.backend)


def _in_short(model: LocalModel, here: RunsHere) -> tuple[ModelConfig | None, str, str]:
    """Its config, how its weights would be held, and why it does not run; None where it cannot be read."""
    if model.problem or not model.config:
        return None, "", model.problem
    try:
        config: ModelConfig = families.parse(dict(model.config))
    except ModelRefused as error:
        return None, "", str(error)
    return config, *here.weights(model.config, has_blocks=_has_blocks(model))


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
