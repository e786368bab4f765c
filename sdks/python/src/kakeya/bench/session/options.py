"""What a user asks of the bench: `kakeya bench session --help`."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kakeya.bench import conversation_flags
from kakeya.bench.conversation_flags import ConversationOptions
from kakeya.bench.kv_bytes import ITEM_BYTES
from kakeya.bench.session.gates import GATES
from kakeya.cli.flags import connection_flags
from kakeya.cli.flags.connection import Connection
from kakeya.cli.flags.variable_flags import VariableFlags, seconds, whole_number

SUMMARY = "long sessions, turn after turn: memory and the cost of a turn stay flat, or a gate says so"
DEFAULT_TURNS = 120
"""The fewest that all gates can judge: a hundred after the warm-up and until the lane is full."""
PRESETS = {"4h": {"duration_s": 14_400.0, "turn_spacing_s": 30.0}}


@dataclass(frozen=True, slots=True)
class Options:
    """As given, or the default; see the flags.

    Attributes:
        num_turns: of each session; None for as many as the duration has room for.
        duration_seconds: no turn begins later; None for no limit.
        turn_spacing_seconds: from the start of a turn to that of the next; a turn that takes longer delays it.
        num_warm_up_turns: of each session; see the gates.
        config: of the model, a config.json or its directory; None for the one beside the tokenizer.
        kv_dtype: of the KV; None for what the worker says.
        is_exact: the gate `exact` is asked for.
        skipped: gates that are not judged.
        output: directory of the report.
        checkpoint_seconds: how often the report is written meanwhile.
    """

    conversation: ConversationOptions
    connection: Connection
    num_sessions: int
    num_turns: int | None
    duration_seconds: float | None
    turn_spacing_seconds: float
    num_warm_up_turns: int
    config: Path | None
    kv_dtype: str | None
    skipped: tuple[str, ...]
    output: Path
    checkpoint_seconds: float

    @property
    def is_exact(self) -> bool:
        """Whether the transcript is replayed in the end."""
        return "exact" not in self.skipped


def parse(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Exits with 2 where they make no sense, as argparse does. Raises BadConnectionFlag."""
    parser = _parser(environment)
    given = parser.parse_args(argv)
    _apply_preset(given)
    if given.turns is None and given.duration_s is None:
        given.turns = DEFAULT_TURNS
    # KAKEYA_TOKENIZER is for all commands, and says nothing of this run.
    if given.random_tokens and (given.prompts or given.tokenizer not in (None, environment.get("KAKEYA_TOKENIZER"))):
        parser.error("--random-tokens goes without --prompts and --tokenizer")
    skipped = {*given.skip_gate} | (set() if given.exact else {"exact"})
    return Options(
        conversation=conversation_flags.read(given),
        connection=connection_flags.read(given, environment),
        num_sessions=given.sessions,
        num_turns=given.turns,
        duration_seconds=given.duration_s,
        turn_spacing_seconds=given.turn_spacing_s or 0.0,
        num_warm_up_turns=given.warm_up_turns,
        config=given.config,
        kv_dtype=given.kv_dtype,
        skipped=tuple(name for name in GATES if name in skipped),
        output=given.output or Path(f"kakeya-bench-session-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"),
        checkpoint_seconds=given.checkpoint_s,
    )


def _apply_preset(given: Namespace) -> None:
    """A preset stands for flags that are not given themselves."""
    for name, value in PRESETS.get(given.preset, {}).items():
        if getattr(given, name) is None:
            setattr(given, name, value)


def _parser(environment: Mapping[str, str]) -> ArgumentParser:
    parser = ArgumentParser(
        prog="kakeya bench session",
        description=f"Plays {SUMMARY}. Progress goes to standard error, a summary to standard output, everything to "
        "report.json, report.html and PNGs.",
        epilog="Exit status: 0 when every gate is passed; 1 where one fails; 2 where one cannot be judged, or the "
        "bench cannot run as asked; 130 on Ctrl-C, which still writes the report. docs/benches.md says how to read it.",
        allow_abbrev=False,
    )
    flags = conversation_flags.add(parser, environment, max_tokens=64)
    _add_length(flags)
    _add_judgement(flags)
    return parser


def _add_length(flags: VariableFlags) -> None:
    flags.add("sessions", 1, "sessions that are held at the same time", type=whole_number(1), metavar="N")
    flags.add("turns", None, f"turns of each session; {DEFAULT_TURNS} without a duration, as few as can be judged",
        type=whole_number(1), metavar="N")  # fmt: skip
    flags.add("duration-s", None, "seconds after which no turn begins; else as many as the turns take", type=seconds,
        metavar="S")  # fmt: skip
    flags.add("turn-spacing-s", None, "seconds from the start of a turn to the next; 0 where not given: at once",
        type=seconds, metavar="S")  # fmt: skip
    flags.add("preset", None, "4h: --duration-s 14400 --turn-spacing-s 30, 480 turns as a person would take them",
        choices=sorted(PRESETS))  # fmt: skip
    flags.add("warm-up-turns", 5, "first turns of each session that no gate compares: caches fill, threads start",
        type=whole_number(0), metavar="N")  # fmt: skip


def _add_judgement(flags: VariableFlags) -> None:
    flags.add("config", None, "the model's config.json or its directory; else the one beside the tokenizer", type=Path,
        metavar="FILE")  # fmt: skip
    flags.add("kv-dtype", None, "type of K and V, where the key is no operator's; else the worker is asked",
        choices=sorted(ITEM_BYTES))  # fmt: skip
    flags.switch(
        "exact", "judge the gate `exact`, too: replay the transcript in one append and compare what comes next"
    )
    flags.add_repeated(
        "skip-gate", "leave a gate out of the judgement", choices=[name for name in GATES if name != "exact"]
    )
    flags.add("output", None, "directory of the report; else one in the working directory that is named for the time",
        type=Path, metavar="DIR")  # fmt: skip
    flags.add("checkpoint-s", 30.0, "seconds between two reports of what there is so far, which outlive kill -9",
        type=seconds, metavar="S")  # fmt: skip
