"""`kakeya plan`: what many sessions take, before there is a machine for them."""

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from kakeya_shared import plugins
from kakeya_worker.command_logs import logged_from

if TYPE_CHECKING:
    from kakeya_worker.inventory.fleet import Fleet, Wanted
    from kakeya_worker.inventory.inventory import Listed

SUMMARY = "say what many sessions take: lanes, workers, Redis, the snapshot store"
EXIT_FAILURE = 1
_EPILOG = """\
Of a model of the hub that is not here, config.json alone is downloaded. Weights are counted as a worker on this host
would hold them; variables of a worker (KAKEYA_WORKER_BACKEND, _WEIGHTS, _KV_DTYPE) count. How many sessions can decode
at once is a question of processors, not of bytes. Formulas and what they were measured on: ops/scaling.md.

Exit status: 0, or 1 where the model cannot run here, or no lane of it fits.

Example:
  kakeya plan --model Qwen/Qwen3-0.6B --sessions 10000 --at-once 200 --window 4096 --worker-bytes 32000000000
"""
_MEMORY_PARTS = 4, 5


def main(argv: list[str]) -> int:
    parser = _parser()
    flags = parser.parse_args(argv)
    at_once = flags.sessions if flags.at_once is None else flags.at_once
    if at_once > flags.sessions:
        parser.error("--at-once is more than --sessions")
    if at_once < flags.sessions and not flags.store:
        parser.error("without a store idle sessions keep their lanes: --at-once needs --store")
    try:
        # Not before: it takes long, and `kakeya --help` must not wait for it.
        from kakeya_worker.engine.seams.verifier import ModelRefused
        from kakeya_worker.inventory.fleet import NoRoom, Wanted, fleet
        from kakeya_worker.inventory.inventory import judged
        from kakeya_worker.inventory.runs_here import RunsHere
        from kakeya_worker.models.local_models import local_model

        lane: dict[str, Any] = {"window": flags.window} | ({} if flags.sink is None else {"sink": flags.sink})
        with logged_from("error"):
            model = judged(local_model(flags.model), RunsHere(), **lane)
    except ModuleNotFoundError as error:
        return _fail(f"needs the module {error.name!r}: pip install 'kakeya-worker[torch]' (or [mlx])")
    except (ModelRefused, plugins.PluginError, OSError) as error:
        return _fail(str(error))
    if model.problem:
        return _fail(f"{flags.model} does not run here: {model.problem}")
    if model.takes is None:
        return _fail(_no_lane(model, flags))
    takes = model.takes
    num_tokens = takes.sink + takes.window if flags.tokens is None else flags.tokens
    wanted = Wanted(flags.sessions, at_once, num_tokens, flags.turn_tokens, flags.worker_bytes, flags.store)
    try:
        planned = fleet(takes, wanted)
    except NoRoom:
        needed = takes.weights + takes.lane
        return _fail(f"weights and one lane take {needed:,} bytes, and a worker has {flags.worker_bytes:,}")
    if flags.json:
        print(json.dumps({"model": flags.model, "weights": model.weights, **planned.document}, indent=2))
    else:
        print("\n".join(_lines(flags.model, model.weights, wanted, planned)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kakeya plan",
        description=f"{SUMMARY.capitalize()}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="MODEL", help="as `kakeya worker --model` takes it")
    add("--sessions", required=True, type=_positive, metavar="N", help="all that there are, idle ones with them")
    add("--at-once", type=_positive, metavar="N", help="of them, that hold a lane at the same time. Default: all")
    add("--tokens", type=_positive, metavar="N", help="of a session's history. Default: as many as a lane keeps")
    add("--turn-tokens", type=_positive, default=500, metavar="N", help="of a session's last turn. Default: 500")
    add("--sink", type=_whole, metavar="TOKENS", help="sinks of a lane. Default: as of a worker")
    add(
        "--window",
        type=_positive,
        metavar="TOKENS",
        help="window of a lane. Default: as of a worker that is told nothing",
    )
    add(
        "--worker-bytes",
        type=_positive,
        default=_usual_bytes(),
        metavar="BYTES",
        help="memory of a worker for weights and lanes. Default: four fifths of this host's",
    )
    add(
        "--store",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="workers have a snapshot store, so that idle sessions need no lane. Default: they have",
    )
    add("--json", action="store_true", help="print one JSON document, for programs")
    return parser


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _usual_bytes() -> int:
    part, of = _MEMORY_PARTS
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * part // of


def _no_lane(model: "Listed", flags: argparse.Namespace) -> str:
    if not model.weights:
        return f"the backend {model.backend} does not say how it holds the weights of {flags.model}"
    return f"no lane of this sink and window fits the positions of {flags.model}; lower --window"


def _lines(name: str, weights: str, wanted: "Wanted", planned: "Fleet") -> list[str]:
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
    return [name, *(f"  {what:9} {said}" for what, said in rows)]


def _fail(line: str) -> int:
    print(f"kakeya plan: error: {line}", file=sys.stderr)
    return EXIT_FAILURE
