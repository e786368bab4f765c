"""What tests of benches share beside their fixtures, and a clock that goes on by what a test says alone: none waits."""

import asyncio
import io
import json
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc
import pytest
from rich.console import Console

from kakeya_bench.conversation import clock
from kakeya_bench.conversation.prompts import RandomTokens
from kakeya_bench.conversation.report import Report
from kakeya_bench.conversation.settings import BenchSettings, RuntimeSettings
from kakeya_bench.conversation.speech import Facts
from kakeya_bench.report import files
from kakeya_bench.report.verdict import exit_status
from tests.unit.sdk.scripted_runtime import VOCAB_SIZE, Fault, ScriptedRuntime

S = TypeVar("S", bound=RuntimeSettings)

CONFIG = {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
}
"""Of a model whose KV in float32 is 4 x 2 x 16 x 4 x 2 = 1,024 bytes a token."""
RSS_BYTES = 300 << 20
FACTS = Facts(
    name="counter",
    fingerprint="f",
    exact=True,
    sink=4,
    window=16,
    reserved_bytes=1,
    kv_dtype="float32",
    kv_bytes_per_token=1024,
    why_not="",
    worker={"worker_id": "w"},
)
SHORT = ("--random-tokens", "3", "--max-tokens", "2")
"""Turns that take little time: three random ids, an answer of two."""


class PlainSettings(BenchSettings):
    """Of a bench that has none of its own."""

    model_config = BenchSettings.configured(command="plain")


def asked(kind: type[S], patch: pytest.MonkeyPatch, *argv: str, **variables: str) -> S:
    """Settings of these flags and environment variables."""
    with patch.context() as inside:
        for name, value in variables.items():
            inside.setenv(name, value)
        return kind.parse([*argv])


class Outcome(NamedTuple):
    """What a run of a bench left behind.

    Attributes:
        out, err: what it said.
        document: its report; empty where there is none.
    """

    status: int
    out: str
    err: str
    document: dict[str, Any]

    @property
    def turns(self) -> list[dict[str, Any]]:
        """As the document has them; those of the only level of a sweep."""
        (found,) = self.document.get("levels", [self.document])
        return list(found["turns"])

    @property
    def levels(self) -> list[dict[str, Any]]:
        """Of a sweep, as the document has them."""
        return list(self.document["levels"])

    def gate(self, name: str) -> dict[str, Any]:
        """What one gate said."""
        said: dict[str, Any] = self.document["gates"][name]
        return said


Play = Callable[..., Outcome]
"""Runs a bench with these flags beside those that name the scripted runtime, and returns what came of it."""


def played(settings: RuntimeSettings, run: Callable[..., Coroutine[Any, Any, tuple[Report, int | None]]]) -> Outcome:
    """What a command runs, without the command: no files but the checkpoints are written, nothing is drawn."""
    files.prepare(settings.directory)
    said = io.StringIO()
    report, interrupted = asyncio.run(run(settings, Console(file=said, width=200)))
    status = exit_status(report.verdicts()) if interrupted is None else interrupted
    return Outcome(status, "", said.getvalue(), json.loads(json.dumps(report.document(), allow_nan=False)))


def typed(
    main: Callable[[list[str]], int], argv: list[str], report: Path, capsys: pytest.CaptureFixture[str]
) -> Outcome:
    """What a command does. `report` is where its document is found afterwards."""
    try:
        status = main(argv)
    except SystemExit as refusal:  # of a flag that makes no sense
        assert isinstance(refusal.code, int)
        status = refusal.code
    said = capsys.readouterr()
    return Outcome(status, said.out, said.err, json.loads(report.read_text()) if report.exists() else {})


def messages(num_turns: int, conversation: int, seed: int = 0) -> list[list[int]]:
    """What a bench says in a conversation of three random ids a turn."""
    tokens = RandomTokens(3, VOCAB_SIZE, seed=seed, conversation=conversation)
    return [tokens.next_turn(None) for _ in range(num_turns)]


def appended(runtime: ScriptedRuntime, session_id: str | None = None) -> list[list[int]]:
    """The ids of each append, to one session or to all."""
    requests = runtime.requests["AppendTokens"]
    return [list(request.token_ids) for request in requests if session_id in (None, request.session_id)]


class OwnClock:
    """In the place of the benches' clock: who sleeps is there at once, and a call takes as long as a test says.

    Attributes:
        tick_seconds: how much later it is after each look at it.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.tick_seconds = 0.0
        self._seconds = 0.0
        self._lock = threading.Lock()
        patch.setattr(clock, "now", self.now)
        patch.setattr(clock, "sleep", self.sleep)

    def now(self) -> float:
        """Seconds since it was made."""
        return self.go_on(self.tick_seconds)

    async def sleep(self, seconds: float) -> None:
        """Those who fall asleep at the same time wake up in that order, each at its own."""
        until = self.go_on(0.0) + seconds
        await asyncio.sleep(0)
        with self._lock:
            self._seconds = max(self._seconds, until)

    def go_on(self, seconds: float) -> float:
        """Returns when it is then."""
        with self._lock:
            self._seconds += seconds
            return self._seconds

    def takes(self, seconds: float) -> Fault:
        """Not a failure: a call that takes so long."""

        def fault(context: grpc.ServicerContext) -> None:
            self.go_on(seconds)

        return fault
