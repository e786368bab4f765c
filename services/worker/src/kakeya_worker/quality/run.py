"""A run of the bench: finds the model, writes the material, measures mode after mode."""

import logging
import sys
import time
from dataclasses import replace
from pathlib import Path

import structlog
from rich.console import Console

from kakeya_shared import plugins
from kakeya_worker.engine.seams.verifier import ModelRefused, Verifier
from kakeya_worker.quality import material, model, plan, progress
from kakeya_worker.quality.chat_template import ChatTemplate
from kakeya_worker.quality.failure import INSTALL, CannotMeasure
from kakeya_worker.quality.measurement import Found, Measurement, num_tasks_in_all
from kakeya_worker.quality.options import AUTO, POLICIES, Options
from kakeya_worker.quality.result import Result


def run(options: Options) -> Result:
    """Measures everything that is asked.

    Raises:
        CannotMeasure: the model or a plugin cannot be had, or not what is asked of it.
    """
    started = time.monotonic()
    # Loading tells of itself as a service does; here only what may be wrong is of interest, beside the progress.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    directory = model.locate(options.model)
    template = ChatTemplate(directory)
    _find_policies(options)
    first = _load(options, directory, options.weights[0])
    facts, loaded = first.facts, [first]
    del first
    chosen = facts.weights if options.weights[0] == AUTO else None
    modes = tuple(dict.fromkeys((facts.weights, *options.weights[1:])))
    whole = plan.make(replace(options, weights=modes), facts)
    written = material.write(whole, template)
    found: dict[str, Found] = {}
    with progress.shown(Console(file=sys.stderr), num_tasks_in_all(whole)) as shown:
        for weights in modes:
            # Nothing keeps a verifier while the next one is loaded: a model may just fit the memory.
            verifier = loaded.pop() if loaded else _load(options, directory, weights)
            found[weights] = Measurement(verifier, whole, template, written, shown).run(weights)
            del verifier
    return Result(whole, directory.resolve().name, template.is_plain, found, chosen, time.monotonic() - started)


def _load(options: Options, directory: Path, weights: str) -> Verifier:
    try:
        backend: type[Verifier] = plugins.load("kakeya.verifier", options.backend, install=INSTALL)
        return backend(
            str(directory), weights=weights, kv_dtype="auto", num_threads=options.num_threads, cache_directory=None
        )
    except (plugins.PluginError, ModelRefused) as error:
        raise CannotMeasure(str(error)) from error


def _find_policies(options: Options) -> None:
    try:
        for policy in options.policies:
            plugins.load(POLICIES, policy)
    except plugins.PluginError as error:
        raise CannotMeasure(str(error)) from error
