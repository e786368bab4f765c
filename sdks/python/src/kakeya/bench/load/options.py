"""What a user asks of the bench: `kakeya bench load --help`."""

import os
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from kakeya.bench import conversation_flags
from kakeya.bench.conversation_flags import ConversationOptions
from kakeya.bench.load.limits import Limits
from kakeya.cli.flags import connection_flags
from kakeya.cli.flags.connection import Connection
from kakeya.cli.flags.variable_flags import VariableFlags, seconds

SUMMARY = "more and more sessions at once, with think times: how many get their answers in time"


@dataclass(frozen=True, slots=True)
class Options:
    """As given, or the default; see the flags.

    Attributes:
        numbers_of_sessions: one for each level, ascending.
        warm_up_seconds: of each level; turns that begin in it do not count.
        duration_seconds: of each level, after the warm-up; no turn begins later.
        think_time_seconds: mean time from the end of an answer to the next turn.
        goal_share: of the turns that must meet the limits, above 0 and up to 1.
        judges_goodput: whether the gate `goodput` is asked for.
        output: directory of the report.
    """

    conversation: ConversationOptions
    connection: Connection
    numbers_of_sessions: tuple[int, ...]
    warm_up_seconds: float
    duration_seconds: float
    think_time_seconds: float
    limits: Limits
    goal_share: float
    judges_goodput: bool
    output: Path


def parse(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Exits with 2 where they make no sense, as argparse does. Raises BadConnectionFlag."""
    parser = _parser(environment)
    given = parser.parse_args(argv)
    # KAKEYA_TOKENIZER is for all commands, and says nothing of this run.
    if given.random_tokens and (given.prompts or given.tokenizer not in (None, environment.get("KAKEYA_TOKENIZER"))):
        parser.error("--random-tokens goes without --prompts and --tokenizer")
    if not given.duration_s:
        parser.error("--duration-s must be above 0")
    return Options(
        conversation=conversation_flags.read(given),
        connection=connection_flags.read(given, environment),
        numbers_of_sessions=given.sessions,
        warm_up_seconds=given.warm_up_s,
        duration_seconds=given.duration_s,
        think_time_seconds=given.think_time_s,
        limits=Limits(given.ttft_limit_s, given.tpot_limit_s),
        goal_share=given.goal_share,
        judges_goodput=given.judge_goodput,
        output=given.output or Path(f"kakeya-bench-load-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"),
    )


def _parser(environment: Mapping[str, str]) -> ArgumentParser:
    parser = ArgumentParser(
        prog="kakeya bench load",
        description=f"Plays {SUMMARY}. Each level of the sweep opens its own sessions, and closes them. A user of each "
        "appends a message, reads the answer as it comes, thinks, and goes on. Goodput is the turns in a second that "
        "succeeded and met both limits. Progress goes to standard error, a line for each level to standard output, "
        "everything to load.json, load.html and load.png.",
        epilog="Exit status: 0 when every gate is passed; 1 where one fails, which without --judge-goodput is where a "
        "turn failed; 2 where one cannot be judged, or the bench cannot run as asked; 130 on Ctrl-C, which still "
        "writes the report. docs/benches.md says how to read it.",
        allow_abbrev=False,
    )
    flags = conversation_flags.add(parser, environment, max_tokens=64)
    _add_load(flags)
    _add_judgement(flags)
    return parser


def _add_load(flags: VariableFlags) -> None:
    flags.add(
        "sessions", "1,2,4,8", "sessions that are held at the same time, for each level; each larger than the one "
        "before. Where not all get in, the level is played with those that do", type=_rising, metavar="N,N,...",
    )  # fmt: skip
    flags.add("warm-up-s", 5.0, "seconds at the start of each level; turns that begin in them do not count",
        type=seconds, metavar="S")  # fmt: skip
    flags.add("duration-s", 60.0, "seconds of each level after the warm-up; no turn begins later, and those that run "
        "come to their ends", type=seconds, metavar="S")  # fmt: skip
    flags.add("think-time-s", 2.0, "mean time from the end of an answer to the next turn, drawn from an exponential "
        "distribution; the first turns are spread over it. 0: nobody thinks", type=seconds, metavar="S")  # fmt: skip


def _add_judgement(flags: VariableFlags) -> None:
    flags.add("ttft-limit-s", 2.0, "most time from the append to the first token", type=seconds, metavar="S")
    flags.add("tpot-limit-s", 0.2, "most time per output token after the first, on average over the turn; the default "
        "is about as fast as people read", type=seconds, metavar="S")  # fmt: skip
    flags.add("goal-share", 0.9, "share of the turns that must meet both limits for a level to count as carried",
        type=_share, metavar="SHARE")  # fmt: skip
    flags.switch(
        "judge-goodput", "judge the gate `goodput`, too: at the largest level all sessions get in, and that share of "
        "the turns meets both limits"
    )  # fmt: skip
    flags.add("output", None, "directory of the report; else one in the working directory that is named for the time",
        type=Path, metavar="DIR")  # fmt: skip


def _rising(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    numbers = tuple(int(part) if part.isdecimal() else 0 for part in parts)
    if min(numbers) < 1 or any(before >= after for before, after in pairwise(numbers)):
        raise ArgumentTypeError(f"{text!r} is no list of whole numbers from 1 on, each larger than the one before")
    return numbers


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ArgumentTypeError(f"{text!r} is no share above 0 and up to 1")
    return value
