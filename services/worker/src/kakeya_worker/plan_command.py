"""`kakeya plan`: what many sessions take, before there is a machine for them."""

import json
import os
import sys
from typing import TYPE_CHECKING

from kakeya_shared import plugins
from kakeya_worker.command_logs import logged_from

if TYPE_CHECKING:
    from kakeya_worker.inventory.fleet import Fleet, Wanted
    from kakeya_worker.inventory.inventory import Listed
    from kakeya_worker.inventory_settings import PlanSettings

SUMMARY = "say what many sessions take: lanes, workers, Redis, the snapshot store"
EXIT_FAILURE = 1
_MEMORY_PARTS = 4, 5


def main(argv: list[str]) -> int:
    from kakeya_worker.inventory_settings import PlanSettings

    settings = PlanSettings.parse(argv)
    try:
        # Not before: it takes long, and `kakeya --help` must not wait for it.
        from kakeya_worker.engine.seams.verifier import ModelRefused
        from kakeya_worker.inventory.inventory import Lane, draft_named, judged
        from kakeya_worker.inventory.runs_here import RunsHere
        from kakeya_worker.models.local_models import local_model

        lane: Lane = {"window": settings.window}
        if settings.sink is not None:
            lane["sink"] = settings.sink
        with logged_from("error"):
            lane["draft"] = draft_named(settings.draft_model)
            model = judged(local_model(settings.model), RunsHere(), **lane)
    except ModuleNotFoundError as error:
        return _fail(f"needs the module {error.name!r}: pip install 'kakeya-worker[torch]' (or [mlx])")
    except (ModelRefused, plugins.PluginError, OSError) as error:
        return _fail(str(error))
    return _plan(settings, model)


def _plan(settings: "PlanSettings", model: "Listed") -> int:
    from kakeya_worker.inventory.fleet import NoRoom, Wanted, fleet

    if model.problem:
        return _fail(f"{settings.model} does not run here: {model.problem}")
    if model.takes is None:
        return _fail(_no_lane(model, settings.model))
    takes = model.takes
    num_tokens = takes.sink + takes.window if settings.tokens is None else settings.tokens
    num_bytes = settings.worker_bytes or _usual_bytes()
    wanted = Wanted(
        settings.sessions, settings.num_at_once, num_tokens, settings.turn_tokens, num_bytes, settings.store
    )
    try:
        planned = fleet(takes, wanted)
    except NoRoom:
        needed = takes.weights + takes.lane
        return _fail(f"weights and one lane take {needed:,} bytes, and a worker has {num_bytes:,}")
    if settings.print_json:
        print(json.dumps({"model": settings.model, "weights": model.weights, **planned.document}, indent=2))
    else:
        print("\n".join(_lines(settings, model.weights, wanted, planned)))
    return 0


def _usual_bytes() -> int:
    part, of = _MEMORY_PARTS
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * part // of


def _no_lane(model: "Listed", name: str) -> str:
    if not model.weights:
        return f"the backend {model.backend} does not say how it holds the weights of {name}"
    return f"no lane of this sink and window fits the positions of {name}; lower --window"


def _lines(settings: "PlanSettings", weights: str, wanted: "Wanted", planned: "Fleet") -> list[str]:
    each, spare = planned.num_workers - 1, "one more for the case that one is lost"
    rows = [
        ("weights", f"{planned.weights_bytes:,} bytes as {weights}"),
        ("a token", f"{planned.token_bytes:,} bytes"),
        ("a lane", f"{planned.lane_bytes:,} bytes for {planned.sink:,} + {planned.window:,} tokens, and its slack"),
        ("a worker", f"{planned.num_lanes:,} lanes in {wanted.worker_bytes:,} bytes"),
        ("workers", f"{each:,} for {wanted.num_at_once:,} sessions at once, and {spare}"),
        (
            "Redis",
            f"{planned.redis_bytes:,} bytes for {wanted.num_sessions:,} sessions of {wanted.num_tokens:,} tokens",
        ),
        ("", f"up to {planned.tag_bytes:,} more where they are chats over HTTP, and room to rewrite its file"),
        (
            "store",
            f"{planned.store_bytes:,} bytes of snapshots"
            if wanted.has_store
            else "none: idle sessions keep their lanes",
        ),
    ]
    names = [settings.model, *([f"  with {settings.draft_model}, which drafts"] if settings.draft_model else [])]
    return [*names, *(f"  {what:9} {said}" for what, said in rows)]


def _fail(line: str) -> int:
    print(f"kakeya plan: error: {line}", file=sys.stderr)
    return EXIT_FAILURE
