"""A worker's models and its slab, as the settings have them."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from kakeya_shared import installed_models, plugins
from kakeya_shared.process.service_process import StartError
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.seams.retention import RetentionPolicy
from kakeya_worker.engine.seams.verifier import ModelFacts, ModelRefused, Verifier
from kakeya_worker.engine.speculation import proposers
from kakeya_worker.engine.speculation.draft_model import DraftModel
from kakeya_worker.engine.speculation.names import DRAFT_MODEL
from kakeya_worker.engine.speculation.proposers import Proposers
from kakeya_worker.metrics import WorkerMetrics
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.sizing import SlabPlan, plan, with_draft_lanes

_log = structlog.get_logger()


def load_engine(settings: WorkerSettings, metrics: WorkerMetrics | None = None) -> Engine:
    """Loads the model and allocates the slab. Raises StartError."""
    try:
        retention: RetentionPolicy = plugins.load("kakeya.retention", settings.retention)
        if settings.speculation != DRAFT_MODEL:
            proposers.load(settings.speculation)
        verifier = load_verifier(settings)
        draft_verifier = _load_draft_verifier(settings, verifier.facts) if settings.draft_model else None
    except (plugins.PluginError, ModelRefused) as error:
        raise StartError(str(error)) from error
    except (OSError, UnicodeError) as error:  # a file of it cannot be read, or its path is no text
        raise StartError(f"{settings.model} cannot be loaded: {error}") from error
    slab = plan(
        verifier.facts if draft_verifier is None else with_draft_lanes(verifier.facts, draft_verifier.facts),
        sink=settings.sink,
        window=settings.window,
        chunk=settings.chunk_tokens,
        num_lanes=settings.lanes,
        slab_bytes=settings.slab_bytes,
    )
    try:
        engine = Engine(
            verifier,
            slab.geometry,
            slab.num_lanes,
            settings.step_tokens,
            retention,
            settings.step_seconds,
            metrics,
            _proposers(settings, verifier.facts, slab, draft_verifier),
        )
    except (MemoryError, RuntimeError) as error:
        raise StartError(f"a slab of {slab.num_lanes} lanes cannot be allocated: {error}") from error
    engine.fit_step_costs()
    _tell(settings, engine)
    return engine


def _proposers(
    settings: WorkerSettings, facts: ModelFacts, slab: SlabPlan, draft_verifier: Verifier | None
) -> Proposers:
    """Raises StartError, and what allocating a slab raises."""
    if draft_verifier is None:
        return Proposers(settings.speculation)
    try:
        draft_model = DraftModel(draft_verifier, slab.geometry, slab.num_lanes, facts.vocab_size)
    except ModelRefused as error:
        raise StartError(str(error)) from error
    return Proposers(settings.speculation, draft_model=draft_model)


def _tell(settings: WorkerSettings, engine: Engine) -> None:
    """What was loaded."""
    totals, facts, geometry = engine.lanes.totals(), engine.facts, engine.lanes.geometry
    _log.info(
        "loaded",
        model=settings.model_name,
        pool=settings.pool_name,
        weights=facts.weights,
        kv_dtype=facts.kv_dtype,
        exact=facts.exact,
        fingerprint=facts.fingerprint,
        sink=geometry.sink,
        window=geometry.window,
        lanes=totals.num_lanes,
        lane_bytes=totals.lane_bytes,
        slab_bytes=totals.slab_bytes,
        speculation=settings.speculation,
        draft_model=settings.draft_model,
        threads=settings.threads,
    )


def load_verifier(settings: WorkerSettings) -> Verifier:
    """A model, by the backend that the settings name. Raises PluginError, ModelRefused, OSError or UnicodeError."""
    return _load(settings, settings.model, settings.weights, settings.kv_dtype)


def _load_draft_verifier(settings: WorkerSettings, facts: ModelFacts) -> Verifier:
    """The draft model, in the mode that is fastest here: what it says decides nothing.

    Raises:
        ModelRefused: it cannot be loaded, or its tokens are not those of the model.
        PluginError
    """
    try:
        draft_verifier = _load(settings, settings.draft_model, "auto", "auto")
    except (OSError, UnicodeError) as error:
        raise ModelRefused(f"{settings.draft_model} cannot be loaded: {error}") from error
    own, other = facts.tokenizer_digest, draft_verifier.facts.tokenizer_digest
    if not own or own != other:
        raise ModelRefused(
            f"--draft-model {settings.draft_model} and --model {settings.model} must have the same tokenizer: digests "
            f"are {other or 'none'} and {own or 'none'}"
        )
    return draft_verifier


def _load(settings: WorkerSettings, model: str, weights: str, kv_dtype: str) -> Verifier:
    # Read by OpenMP when the backend is imported: threads that wait spin briefly and then sleep. Spinning for long,
    # those of two processes on the same cores keep each other from working.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # Of the torch backend alone, and so no argument of the seam; without a worker it is read from the variable, too.
    os.environ["KAKEYA_WORKER_KERNEL"] = settings.kernel
    _log.info("loading", model=model, backend=settings.backend, weights=weights)
    install = f"pip install 'kakeya-worker[{settings.backend}]'"
    with _no_garbage_sought():
        backend: type[Verifier] = plugins.load("kakeya.verifier", settings.backend, install=install)
    return backend(
        installed_models.resolve(model),
        weights=weights,
        kv_dtype=kv_dtype,
        num_threads=settings.threads,
        cache_directory=settings.cache_directory,
    )


@contextmanager
def _no_garbage_sought() -> Iterator[None]:
    """Modules that are imported are none, and looking at them again and again takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
