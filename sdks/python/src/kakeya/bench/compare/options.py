"""What a user asks of the bench: `kakeya bench compare --help`."""

import math
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kakeya.bench.compare.rival import RUNTIME, Rival, rival, rival_fields
from kakeya.bench.conversation_flags import PREFIX
from kakeya.cli.flags import connection_flags
from kakeya.cli.flags.connection import Connection
from kakeya.cli.flags.variable_flags import VariableFlags, seconds, whole_number

SUMMARY = "the same conversation on this runtime and on servers that know no sessions"
USUAL_MARKS = (1, 10, 50, 200)


@dataclass(frozen=True, slots=True)
class Options:
    """As given, or the default; see the flags.

    Attributes:
        marks: turns whose figures are reported, ascending.
        claims: by a rival's name, how many times the runtime's time to first token its own must be.
        config: of the model, a config.json or its directory; None for that of the installed model.
        output: directory of the report.
        checkpoint_seconds: how often the report is written meanwhile.
    """

    connection: Connection
    model: str | None
    num_turns: int
    num_new_tokens: int
    max_tokens: int
    num_warm_up_turns: int
    marks: tuple[int, ...]
    rivals: tuple[Rival, ...]
    claims: Mapping[str, float]
    sink: int | None
    window: int | None
    seed: int
    timeout_seconds: float
    config: Path | None
    output: Path
    checkpoint_seconds: float


def parse(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Exits with 2 where they make no sense, as argparse does. Raises BadConnectionFlag."""
    parser = _parser(environment)
    given = parser.parse_args(argv)
    try:
        marks = _marks(given.marks, given.turns)
        rivals = _rivals(given)
        claims = _claims(given.at_least, rivals)
    except ArgumentTypeError as error:
        parser.error(str(error))
    return Options(
        connection=connection_flags.read(given, environment),
        model=given.model,
        num_turns=given.turns,
        num_new_tokens=given.new_tokens,
        max_tokens=given.max_tokens,
        num_warm_up_turns=given.warm_up_turns,
        marks=marks,
        rivals=rivals,
        claims=claims,
        sink=given.sink,
        window=given.window,
        seed=given.seed,
        timeout_seconds=given.timeout_s,
        config=given.config,
        output=given.output or Path(f"kakeya-bench-compare-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"),
        checkpoint_seconds=given.checkpoint_s,
    )


def _marks(given: Sequence[int] | None, num_turns: int) -> tuple[int, ...]:
    if given is None:
        return tuple(sorted({*(mark for mark in USUAL_MARKS if mark < num_turns), num_turns}))
    if given[-1] > num_turns:
        raise ArgumentTypeError(f"--marks: there is no turn {given[-1]} in {num_turns} turns")
    return tuple(given)


def _rivals(given: Namespace) -> tuple[Rival, ...]:
    """With the fields of their requests, and able to hold a turn. Raises ArgumentTypeError."""
    names = [each.name for each in given.rival]
    if repeated := [name for name, number in Counter(names).items() if number > 1]:
        raise ArgumentTypeError(f"--rival: {repeated[0]!r} is there twice")
    fields = dict(given.fields)
    _check_known(fields, names, "--fields")
    for each in given.rival:
        needed = each.keep + given.new_tokens + given.max_tokens
        if each.context is not None and needed > each.context:
            raise ArgumentTypeError(
                f"--rival {each.name}: {each.keep} kept, {given.new_tokens} new and {given.max_tokens} tokens of an "
                f"answer do not fit a context of {each.context}"
            )
    return tuple(replace(each, fields=fields.get(each.name, {})) for each in given.rival)


def _claims(given: Sequence[tuple[str, float]], rivals: Sequence[Rival]) -> dict[str, float]:
    claims = dict(given)
    _check_known(claims, [each.name for each in rivals], "--at-least")
    return claims


def _check_known(named: Mapping[str, object], names: Sequence[str], flag: str) -> None:
    if unknown := [name for name in named if name not in names]:
        raise ArgumentTypeError(f"{flag}: there is no --rival {unknown[0]!r}")


def _parser(environment: Mapping[str, str]) -> ArgumentParser:
    parser = ArgumentParser(
        prog="kakeya bench compare",
        description=f"Plays {SUMMARY}, turn by turn, side by side: random tokens, answers of one length. Progress goes "
        "to standard error, a summary to standard output, everything to compare.json, compare.html and compare.png.",
        epilog="Exit status: 0 when every claim holds; 1 where one does not; 2 where one cannot be judged, or the "
        "bench cannot run as asked; 130 on Ctrl-C, which still writes the report. docs/benches.md says how to read it.",
        allow_abbrev=False,
    )
    connection_flags.add(parser, environment, address_variables=(f"{PREFIX}ADDRESS", "KAKEYA_ADDRESS"))
    flags = VariableFlags(parser, PREFIX, environment)
    _add_conversation(flags)
    _add_rivals(parser)
    flags.add("config", None, "the model's config.json or its directory, for what a rival's KV weighs; else that of "
        "the installed model", type=Path, metavar="FILE")  # fmt: skip
    flags.add("output", None, "directory of the report; else one in the working directory that is named for the time",
        type=Path, metavar="DIR")  # fmt: skip
    flags.add("checkpoint-s", 30.0, "seconds between two reports of what there is so far, which outlive kill -9",
        type=seconds, metavar="S")  # fmt: skip
    return parser


def _add_conversation(flags: VariableFlags) -> None:
    flags.add("model", None, "model to be served by, where the runtime serves several", metavar="NAME")
    flags.add("turns", 200, "turns of the conversation", type=whole_number(1), metavar="N")
    flags.add("new-tokens", 100, "random ids that are new in each turn", type=whole_number(1), metavar="N")
    flags.add("max-tokens", 16, "length of each answer, whatever the model would say", type=whole_number(1),
        metavar="N")  # fmt: skip
    flags.add("marks", None, f"turns to report, with commas; {','.join(map(str, USUAL_MARKS))} as far as there are so "
        "many, and the last one, where not given", type=_mark_list, metavar="N,N,...")  # fmt: skip
    flags.add("warm-up-turns", 1, "turns of other conversations that everybody plays before the first one",
        type=whole_number(0), metavar="N")  # fmt: skip
    flags.add("sink", None, "sinks of the session; else the worker's", type=whole_number(0), metavar="TOKENS")
    flags.add("window", None, "window of the session; else the worker's", type=whole_number(1), metavar="TOKENS")
    flags.add("seed", 0, "of the tokens", type=whole_number(0), metavar="N")
    flags.add("timeout-s", 600.0, "of an append, of a generation and of a rival's whole answer", type=seconds,
        metavar="S")  # fmt: skip


def _add_rivals(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rival", action="append", default=[], type=rival, metavar="NAME=URL[,OPTION=VALUE...]",
        help="server with POST URL/completions; may be repeated. model=ID: its name for the model. context=N: most "
        "tokens of prompt and answer; the oldest after the first keep=N (4) are dropped then, drop=N at a time (half "
        "of the context). every=turn, or every=mark for one that keeps nothing from turn to turn. pid=N: its process, "
        "whose memory is reported; else the one that listens at the port. kv=N: most tokens that its KV holds. "
        "key-file=FILE: shown as bearer token",
    )  # fmt: skip
    parser.add_argument(
        "--fields", action="append", default=[], type=rival_fields, metavar="NAME=JSON",
        help="fields of a rival's requests over the usual ones, null for none; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--at-least", action="append", default=[], type=_claim, metavar="NAME=FACTOR",
        help="claim that the rival's time to first token is at least so many times the runtime's at the last mark; "
        "may be repeated",
    )  # fmt: skip


def _mark_list(text: str) -> tuple[int, ...]:
    """A type of flags: turns with commas between them."""
    return tuple(sorted({whole_number(1)(part.strip()) for part in text.split(",")}))


def _claim(text: str) -> tuple[str, float]:
    """A type of flags: a rival and a factor."""
    name, _, factor = text.rpartition("=")
    try:
        value = float(factor)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf or name == RUNTIME:
        raise ArgumentTypeError(f"{text!r} is not NAME=FACTOR of a rival, with a factor above 0")
    return name, value
