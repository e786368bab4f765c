"""A run of the bench: finds the model, writes the material, measures mode after mode."""

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import structlog
from rich.console import Console

from kakeya_bench.quality import plan
from kakeya_bench.quality.material import material
from kakeya_bench.quality.material.chat_template import ChatTemplate
from kakeya_bench.quality.measure.measurement import Found, Measurement, Tasks
from kakeya_bench.quality.result.document import document
from kakeya_bench.quality.settings import AUTO, INSTALL, POLICIES, CannotMeasure, QualitySettings
from kakeya_bench.report import progress
from kakeya_shared import installed_models, plugins
from kakeya_shared.gguf import model_names, ollama_store
from kakeya_shared.gguf.gguf_file import is_gguf
from kakeya_worker.engine.seams.verifier import ModelRefused, Verifier
from kakeya_worker.models import checkpoint

_WITH_KV_TYPES = (AUTO, "gguf", "int8")  # float modes have their own


def run(settings: QualitySettings, console: Console) -> dict[str, Any]:
    """Measures everything that is asked, and returns the document.

    Raises:
        CannotMeasure: the model or a plugin cannot be loaded, or not what is asked of it.
    """
    started = time.monotonic()
    # Loading tells of itself as a service does; here only what may be wrong is of interest, beside the progress.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        model, place = _locate(settings.model)
        template = ChatTemplate(model)
        for policy in settings.policies:
            plugins.load(POLICIES, policy)
        found: dict[str, Found] = {}
        with progress.shown(console, "quality") as shown:
            shown.show(0.0, f"loading {settings.model}")
            first = _load(settings, place, settings.weights[0])
            facts, loaded = first.facts, [first]
            del first
            modes = tuple(dict.fromkeys((facts.weights, *settings.weights[1:])))
            whole = plan.make(settings.model_copy(update={"weights": modes}), facts)
            written = material.write(whole, template)
            tasks = Tasks(shown, sum(map(whole.num_tasks, modes)))
            for weights in modes:
                # Nothing keeps a verifier while the next one is loaded: a model may just fit the memory.
                verifier = loaded.pop() if loaded else _load(settings, place, weights)
                found[weights] = Measurement(verifier, whole, written, tasks).run(weights)
                del verifier
    except (plugins.PluginError, ModelRefused) as error:
        raise CannotMeasure(str(error)) from error
    model_facts = {
        "name": model_names.served_name(model if place.is_file() else str(place.resolve())),
        "has_chat_template": not template.is_plain,
        "chosen": facts.weights if settings.weights[0] == AUTO else None,
    }
    return document(whole, found, model_facts, seconds=time.monotonic() - started)


def _locate(name: str) -> tuple[str, Path]:
    """A model as libraries take it, and its directory or GGUF file; a Hub's is downloaded where needed."""
    model = installed_models.resolve(name)
    is_named = "/" in model or model.startswith(ollama_store.PREFIX) or is_gguf(model)
    if not is_named and not os.path.isdir(os.path.expanduser(model)):
        known = ", ".join(installed_models.names()) or "none"
        raise CannotMeasure(f"{name!r} is neither a directory, a GGUF file nor an installed model (installed: {known})")
    return os.path.expanduser(model), checkpoint.locate(model)


def _load(settings: QualitySettings, place: Path, weights: str) -> Verifier:
    backend: type[Verifier] = plugins.load("kakeya.verifier", settings.backend, install=INSTALL)
    kv_dtype = settings.kv_dtype if weights in _WITH_KV_TYPES else "auto"
    return backend(str(place), weights=weights, kv_dtype=kv_dtype, num_threads=settings.threads, cache_directory=None)
