"""What tests of `kakeya bench compare` share."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from kakeya.bench import report_file
from kakeya.bench.compare import options
from kakeya.bench.compare.played_turn import PlayedTurn
from kakeya.bench.compare.rival import RUNTIME
from kakeya.bench.compare.run import run
from kakeya.bench.verdict import exit_status
from tests.unit.sdk.bench.playing import Outcome
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

SHORT = ("--new-tokens", "3", "--max-tokens", "2", "--warm-up-turns", "0")
"""Turns that take little time: three new ids, an answer of two."""


def compare(runtime: ScriptedRuntime, directory: Path, *flags: str) -> Outcome:
    """Runs short turns; no files but the checkpoints are written."""
    output = directory / "report"
    asked = options.parse(["--address", runtime.address, "--output", str(output), *SHORT, *flags])
    report_file.prepare(asked.output)
    said = io.StringIO()
    report, interrupted = asyncio.run(run(asked, Console(file=said, width=200)))
    status = exit_status(report.verdicts()) if interrupted is None else interrupted
    return Outcome(status, "", said.getvalue(), json.loads(json.dumps(report.document())))


def of_player(outcome: Outcome, name: str) -> list[dict[str, Any]]:
    """The turns of one player."""
    return [turn for turn in outcome.turns if turn["player"] == name]


def figures_of(outcome: Outcome, name: str) -> dict[str, Any]:
    """What the report says of one player."""
    return next(player for player in outcome.document["players"] if player["name"] == name)


def played(index: int, seconds: float | None = 1.0, player: str = RUNTIME, **facts: Any) -> PlayedTurn:
    """A turn whose first token took so long, and the whole of it twice that; None for one that failed."""
    figures: dict[str, Any] = {"error": "it failed"}
    if seconds is not None:
        figures = {"time_to_first_token_seconds": seconds, "total_seconds": 2 * seconds}
    return PlayedTurn(
        player=player, index=index, place=0, started_seconds=0.0, history_length=10 * index, num_sent_tokens=5,
        **(figures | facts),
    )  # fmt: skip
