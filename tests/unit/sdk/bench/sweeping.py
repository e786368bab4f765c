"""What tests of `kakeya bench load` share."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from kakeya.bench.load import command
from kakeya.bench.load.level import Level, LevelState
from kakeya.bench.load.options import Options, parse
from kakeya.bench.load.timed_turn import TimedTurn
from kakeya_stubs.admin.v1 import admin_pb2_grpc
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import Fault, ScriptedRuntime

SHORT = (
    "--random-tokens",
    "3",
    "--max-tokens",
    "4",
    "--warm-up-s",
    "0",
    "--duration-s",
    "0.25",
    "--think-time-s",
    "0.03",
)
"""Levels that take little time: three random ids a turn, an answer of four, next to no thought."""


class Swept(NamedTuple):
    """What a run of the bench left behind.

    Attributes:
        document: load.json; empty where there is none.
        names: of the report's files.
    """

    status: int
    out: str
    err: str
    document: dict[str, Any]
    names: list[str]

    @property
    def levels(self) -> list[dict[str, Any]]:
        """As the document has them."""
        levels: list[dict[str, Any]] = self.document["levels"]
        return levels

    def turns(self, level: int = 0) -> list[dict[str, Any]]:
        """Those of a level."""
        turns: list[dict[str, Any]] = self.levels[level]["turns"]
        return turns

    def gate(self, name: str) -> tuple[str, str]:
        """The outcome, and the reason."""
        said = self.document["gates"][name]
        return said["outcome"], said["reason"]


Sweep = Callable[..., Swept]
"""Runs the bench with these flags; returns what came of it."""


def sweeper(runtime: ScriptedRuntime, output: Path, capsys: pytest.CaptureFixture[str]) -> Sweep:
    """Of a runtime; the report goes to `output`."""

    def sweep(*flags: str) -> Swept:
        try:
            status = command.main(["--address", runtime.address, "--output", str(output), *flags])
        except SystemExit as refusal:  # as argparse does
            status = refusal.code if isinstance(refusal.code, int) else 1
        said, file = capsys.readouterr(), output / "load.json"
        document = json.loads(file.read_text()) if file.exists() else {}
        names = sorted(path.name for path in output.iterdir()) if output.exists() else []
        return Swept(status, said.out, said.err, document, names)

    return sweep


class SlowTokens(ScriptedRuntime):
    """A runtime that takes its time for each token."""

    def __init__(self, admin: ScriptedAdmin, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(add_service=partial(admin_pb2_grpc.add_AdminServiceServicer_to_server, admin))

    def _tokens(self, *args: Any) -> Iterator[Any]:
        for response in super()._tokens(*args):
            time.sleep(self.seconds)
            yield response


class Always(deque[Fault]):
    """One fault for every call of a method."""

    def popleft(self) -> Fault:
        return self[0]


def passes(context: grpc.ServicerContext) -> None:
    """A fault that is none."""


def takes(seconds: float) -> Fault:
    """Not a failure: a call that takes longer."""
    return lambda context: time.sleep(seconds)


def turn(first: float | None = 1.0, each: float | None = 0.1, **fields: Any) -> TimedTurn:
    """One that never was, with these times to the first token and for each after it."""
    given: dict[str, Any] = {
        "session": 0, "index": 1, "started_seconds": 0.0, "wall_seconds": 2.0, "is_warm_up": False,
        "num_new_tokens": 3, "num_tokens_out": 11, "history_length": 14, "kv_live_bytes": 14_336, **fields,
    }  # fmt: skip
    return TimedTurn(time_to_first_token_seconds=first, time_per_output_token_seconds=each, **given)


def failed(**fields: Any) -> TimedTurn:
    """One that never was, and that got no answer."""
    nothing = {"num_tokens_out": 0, "history_length": 0, "kv_live_bytes": None, "error": "Internal: no"}
    return turn(None, None, **{**nothing, **fields})


def level(num_sessions: int, *turns: TimedTurn, **fields: Any) -> Level:
    """One that never was, of ten seconds, into which all sessions got."""
    given: dict[str, Any] = {"num_opened": num_sessions, "state": LevelState.COMPLETE, "measured_seconds": 10.0}
    return Level(num_sessions, turns=list(turns), **{**given, **fields})


def asked(*flags: str) -> Options:
    """Options of these flags, and of nothing else."""
    return parse(flags, {})
