"""What a user asks of the bench: `kakeya bench quality --help`."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kakeya_shared import plugins
from kakeya_shared.process import processors
from kakeya_worker.quality.floors import FLOORS, Floor

T = TypeVar("T")

POLICIES = "kakeya.retention"
SUMMARY = "what a bounded cache costs a model: recall, multi-turn recall, perplexity, int8 against float32"
DEFAULT_SAMPLES = 18
QUICK_SAMPLES = 16  # as many as a share must be of to be judged
AUTO = "auto"  # what a worker would choose by itself
DEFAULT_WEIGHTS = (AUTO, "float32", "int8")
_MODES = (AUTO, "float32", "bfloat16", "int8")


@dataclass(frozen=True)
class Options:
    """As given, or the default; see the flags.

    Attributes:
        weights: modes; the first is measured whole, the others only where int8 is compared with float32. Only the
            first can be AUTO; what it stands for is left out of the others.
        windows, distances: None for those that suit the model.
        num_samples: dialogues of each kind.
        is_full: every mode is measured whole, and everything at every window.
    """

    model: str
    backend: str = "torch"
    weights: tuple[str, ...] = DEFAULT_WEIGHTS
    policies: tuple[str, ...] = ("sink-window",)
    windows: tuple[int, ...] | None = None
    sinks: tuple[int, ...] = (0, 4)
    distances: tuple[int, ...] | None = None
    num_samples: int = DEFAULT_SAMPLES
    seed: int = 0
    num_threads: int = 1
    text: Path | None = None
    output: Path | None = None
    floors: tuple[Floor, ...] = ()
    is_quick: bool = False
    is_full: bool = False


def parse(argv: Sequence[str]) -> Options:
    """Exits with 2 where they make no sense, as argparse does."""
    parser = _parser()
    given = parser.parse_args(argv)
    if AUTO in given.weights[1:]:
        parser.error(f"--weights: only the first mode can be {AUTO}")
    return Options(
        model=given.model,
        backend=given.backend,
        weights=_unique(given.weights),
        policies=_unique(given.policies or plugins.names(POLICIES)),
        windows=given.windows,
        sinks=_unique(given.sinks),
        distances=given.distances,
        num_samples=given.samples or (QUICK_SAMPLES if given.quick else DEFAULT_SAMPLES),
        seed=given.seed,
        num_threads=given.threads,
        text=given.text,
        output=given.output,
        floors=tuple(given.floor),
        is_quick=given.quick,
        is_full=given.full,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kakeya bench quality",
        description=f"Measures {SUMMARY}. Progress goes to standard error, a summary to standard output.",
        epilog="Exit status: 0; 1 where a floor is not met; 2 where something is asked that makes no sense, or a floor "
        "cannot be judged; 130 on Ctrl-C. docs/quality.md says how to read the card.",
        allow_abbrev=False,
    )
    _add_what_is_measured(parser)
    _add_how(parser)
    return parser


def _add_what_is_measured(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True, metavar="MODEL", help="an installed model's name, a directory, or a Hub id")
    add("--weights", type=_list(_one_of(_MODES)), default=DEFAULT_WEIGHTS, metavar="MODE,...",
        help="modes of the weights; the first is measured whole, the others where int8 is compared with float32; "
             f"{AUTO} is what a worker would choose (default: {','.join(DEFAULT_WEIGHTS)})")  # fmt: skip
    add("--full", action="store_true",
        help="measure every mode whole; and facts in the system message, and recall with fewer sinks, at every window "
             "instead of the middle one")  # fmt: skip
    add("--policies", type=_list(str), metavar="NAME,...", help="retention policies (default: all that are installed)")
    add("--windows", type=_list(_at_least(1)), metavar="W,...",
        help="windows in tokens, beside the most sinks (default: 128,256 and as large as fits 1024)")  # fmt: skip
    add("--sinks", type=_list(_at_least(0)), default=(0, 4), metavar="S,...",
        help="sinks; S + W is the same for all of them (default: 0,4)")  # fmt: skip
    add("--distances", type=_list(_at_least(1)), metavar="D,...",
        help="distances of questions, in tokens (default: two an octave and around each window's edge, to beyond twice "
             "S + W)")  # fmt: skip
    add("--text", type=Path, metavar="FILE", help="text for perplexity (default: dialogues that the bench writes)")
    add("--floor", type=Floor.parse, action="append", default=[], metavar="NAME=VALUE",
        help=f"exit with 1 where it is not met; may be repeated. Names: {'; '.join(FLOORS)}")  # fmt: skip


def _add_how(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--samples", type=_at_least(1), metavar="N",
        help=f"dialogues of each kind (default: {DEFAULT_SAMPLES}; {QUICK_SAMPLES} with --quick)")  # fmt: skip
    add("--quick", action="store_true", help="fewer samples in one window, for CI")
    add("--seed", type=int, default=0, metavar="N", help="of all that is drawn (default: 0)")
    add("--threads", type=_at_least(1), default=processors.usable(), metavar="N",
        help="compute threads (default: the processors that this process may use)")  # fmt: skip
    add("--backend", default="torch", metavar="NAME", help="verifier backend plugin (default: torch)")
    add("--output", type=Path, metavar="DIR", help="write quality.json, card.md, recall.png and perplexity.png there")


def _list(of: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    def parse_list(text: str) -> tuple[T, ...]:
        return tuple(of(part.strip()) for part in text.split(","))

    return parse_list


def _at_least(least: int) -> Callable[[str], int]:
    def parse_count(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return parse_count


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    def parse_word(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")
        return text

    return parse_word


def _unique(given: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(given))
