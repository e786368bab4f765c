"""The TypeScript SDK beside the Python SDK: processor time of a token, and how a loop is left.

Both, of Python the asynchronous client, have a process each. They talk in turn (A B, B A, ...) to one router and
one worker with a small random model, a token a step. Processor time is all of a process's: what a runtime compiles and
collects in threads counts. Streams are measured once a process has had some; what its first one takes is told, and
judged by nobody. When a Stop arrives says the worker's span of it, which comes to the bench's own receiver.

Exits with 1 when the upper end of the ratio's 95 % interval is above 0.7; when the 95th percentile of the time between
leaving and the worker's Stop is above 50 ms; when a history is longer 0.4 s after leaving than it was after 0.2 s; or
when more tokens come to be beyond those seen than with Python: the difference's interval lies above 0.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kakeya_bench.compare.processes import cpu_seconds_of
from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_bench.statistics import intervals
from kakeya_bench.statistics.distribution import percentile
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.pairs import in_turn
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.integration.processes import runtime, wait_until
from tests.random_checkpoint import save_random_checkpoint

SDK = Path(__file__).parents[3] / "sdks" / "typescript"
COMMANDS = {
    "python": (sys.executable, "-m", "tests.benchmarks.calls.sdk_client"),
    "typescript": ("node", str(SDK / "tests" / "bench" / "client.mjs")),
}
STOP = "kakeya.worker.v1.VerifierService/Stop"
RATIO_BOUND = 0.7
STOP_BOUND_MS = 50.0
PAUSES_SECONDS = (0.2, 0.2)
_NUM_ROUNDS = 4  # of streams, by pair of processes


class SdkSettings(BenchSettings):
    pairs: int = setting(4, "pairs of processes that stream", reason="two minutes", metavar="N", ge=2)
    tokens: int = setting(2_000, "tokens of a stream", reason="seconds", unit="tokens", metavar="N", ge=1)
    warm: int = setting(2, "streams before those that are measured", reason="then V8 has compiled", metavar="N", ge=1)
    leavings: int = setting(100, "loops that each SDK leaves", reason="a 95th percentile", metavar="N", ge=1)


class Side:
    """One SDK's process."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self._process = process

    def do(self, what: str, **given: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"do": what, **given}), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def stream(self, num_tokens: int) -> float:
        """Microseconds of processor time that a token took."""
        before = cpu_seconds_of(self._process.pid)
        streamed = self.do("stream", num_tokens=num_tokens)["num_tokens"]
        return (cpu_seconds_of(self._process.pid) - before) / float(streamed) * 1e6


@contextmanager
def sides(address: str) -> Iterator[list[Side]]:
    """One of each, in the order of COMMANDS."""
    begun = {
        name: subprocess.Popen([*command, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name, command in COMMANDS.items()
    }
    try:
        yield [Side(name, process) for name, process in begun.items()]
    finally:
        for process in begun.values():
            with process:  # closes its input, which is its end, and waits
                pass


def streams(address: str, settings: SdkSettings, step: Callable[[str], None]) -> dict[str, Any]:
    """Processor time of a token: of the first stream of a process, and of later ones."""
    first: dict[str, list[float]] = defaultdict(list)
    later: dict[str, list[float]] = defaultdict(list)
    for _ in range(settings.pairs):
        with sides(address) as pair:
            for side in pair:
                first[side.name].append(side.stream(settings.tokens))
                for _ in range(settings.warm - 1):
                    side.stream(settings.tokens)
            for order in in_turn(pair, _NUM_ROUNDS):
                for side in order:
                    later[side.name].append(side.stream(settings.tokens))
                step("streams")
    return {"first stream": ratio(first), "later streams": ratio(later)}


def ratio(microseconds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Of what a token took by TypeScript to what it took by Python, over pairs."""
    python, typescript = (np.array(microseconds[name]) for name in COMMANDS)
    found = intervals.of_mean(np.log(typescript / python).tolist())
    return {
        "cpu_us_a_token": {name: float(np.mean(microseconds[name])) for name in COMMANDS},
        "ratio": float(np.exp(found.estimate)),
        "interval_95": [float(np.exp(end)) for end in (found.low, found.high)],
    }


def leavings(
    address: str, receiver: OtlpReceiver, settings: SdkSettings, step: Callable[[str], None]
) -> dict[str, Any]:
    """How loops were left, by SDK."""
    left: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with sides(address) as pair:
        for number, order in enumerate(in_turn(pair, settings.leavings)):
            for side in order:
                left[side.name].append(side.do("leave", after=20 + number % 30, pauses_seconds=PAUSES_SECONDS))
            step("loops left")
    wait_until(lambda: len(_stops(receiver)) == 2 * settings.leavings, "a Stop of each loop that was left")
    stops = _stops(receiver)
    beyond = {name: [each["history_lengths"][0] - each["num_seen"] for each in left[name]] for name in COMMANDS}
    found = {}
    for name in COMMANDS:
        milliseconds = [(stops[each["session_id"]] - each["left_at"]) * 1e3 for each in left[name]]
        found[f"left by {name}"] = {
            "stop_ms": {share: percentile(milliseconds, int(share[1:])) for share in ("p50", "p95", "p100")},
            "tokens_beyond": {"mean": float(np.mean(beyond[name])), "max": max(beyond[name])},
            "num_grown_later": sum(len(set(each["history_lengths"])) > 1 for each in left[name]),
        }
    return {**found, "tokens_more": tokens_more(beyond)}


def tokens_more(beyond: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Tokens that came to be beyond those seen: how many more by TypeScript, over pairs."""
    more = intervals.of_mean(np.subtract(beyond["typescript"], beyond["python"]).tolist())
    return {"mean": more.estimate, "interval_95": [more.low, more.high]}


def _stops(receiver: OtlpReceiver) -> dict[str, float]:
    """When the worker got the first Stop of a session, in seconds since 1970."""
    begun = [
        (str(span.attributes.get("gen_ai.conversation.id", "")), span.span.start_time_unix_nano / 1e9)
        for span in receiver.named(STOP)
        if span.service == "kakeya-worker"
    ]
    return dict(sorted(begun, key=lambda each: -each[1]))


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    stop, more = found["left by typescript"], found["tokens_more"]
    later = found["later streams"]["interval_95"]
    return [
        at_most("processor time", "upper end of the ratio's interval", Precise(later[1]), Precise(RATIO_BOUND)),
        at_most("stop", "p95 in milliseconds", Precise(stop["stop_ms"]["p95"]), Precise(STOP_BOUND_MS)),
        at_most("histories", "that grew later than 0.2 s after leaving", stop["num_grown_later"], 0),
        at_most("tokens", "lower end of the interval of those more", Precise(more["interval_95"][0]), Precise(0.0)),
    ]


def measured(settings: SdkSettings, directory: Path, step: Callable[[str], None]) -> dict[str, Any]:
    """Both parts, on one runtime."""
    model = save_random_checkpoint(directory / "model")
    with (
        otlp_receiver() as receiver,
        runtime(model, directory, num_workers=1, environment=receiver.environment()) as made,
    ):
        return streams(made.address, settings, step) | leavings(made.address, receiver, settings, step)


@bench.command(SdkSettings)
def measure(settings: SdkSettings, stage: Stage) -> Found:
    step = stage.steps(settings.pairs * _NUM_ROUNDS + settings.leavings)
    found = measured(settings, stage.directory, step)
    return found, verdicts(found)
