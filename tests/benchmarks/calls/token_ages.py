"""How old a token is when a client has it, beside the router of another commit.

Each router has a Redis and a worker without a model of its own. Its sessions step when the machine's monotonic clock
has a multiple of a fortieth of a second, so that a client knows without being told when each token was made: it is one
step after the one before, and the youngest of an answer is less than a step old. Sixteen answers at once, of one
router, of the other twice, of the one again.

Judged is the geometric mean over pairs of rounds of the ratio of medians, and of the 99th percentiles.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_bench.statistics import intervals
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1 import runtime_pb2_grpc
from tests.benchmarks.calls import side_by_side
from tests.benchmarks.calls.side_by_side import Kind
from tests.benchmarks.pairs import in_turn
from tests.integration.processes import Runtime

STEPS_A_SECOND = 40
NUM_STREAMS = 16
NUM_TOKENS = 160
PERCENTILES = {"p50": 50, "p99": 99}
BOUND = 1.05
_LONG_SECONDS = 60.0


@dataclass
class Side:
    """A router, and sessions that it serves.

    Attributes:
        ages: of tokens in seconds, by round.
    """

    stub: Any
    session_ids: Sequence[str]
    ages: list["np.ndarray[Any, Any]"] = field(default_factory=list)

    @classmethod
    async def opened(cls, stub: Any) -> "Side":
        opened = [(await stub.CreateSession(api.CreateSessionRequest())).session_id for _ in range(NUM_STREAMS)]
        for session_id in opened:
            await stub.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=[1, 2, 3]))
        return cls(stub, opened)

    async def measure(self, num_tokens: int) -> None:
        """One round: an answer of each session."""
        arrived = await asyncio.gather(*(self._arrivals(each, num_tokens) for each in self.session_ids))
        self.ages.append(np.concatenate([ages(each) for each in arrived]))

    async def _arrivals(self, session_id: str, num_tokens: int) -> list[float]:
        request = api.GenerateRequest(session_id=session_id, max_tokens=num_tokens)
        stream = self.stub.Generate(request, timeout=_LONG_SECONDS)
        return [time.monotonic() async for response in stream if response.HasField("token_id")]


def ages(arrivals: Sequence[float]) -> "np.ndarray[Any, Any]":
    """Of an answer's tokens, from when they arrived on the monotonic clock; one was made with each step.

    Returns:
        Seconds, of which the least is below that of a step.
    """
    since_first = np.asarray(arrivals) - np.arange(len(arrivals)) / STEPS_A_SECOND
    made = np.floor(since_first.min() * STEPS_A_SECOND) / STEPS_A_SECOND
    found: np.ndarray[Any, Any] = since_first - made
    return found


@contextmanager
def standing(kinds: Sequence[Kind], directory: Path) -> Iterator[list[Runtime]]:
    """Each with a Redis and a worker of its own."""
    directory.mkdir(exist_ok=True)
    with ExitStack() as stack:
        found = []
        for kind in kinds:
            (made,) = stack.enter_context(side_by_side.routers([kind], directory, in_order=True))
            command = [sys.executable, "-m", "tests.benchmarks.calls.paced_worker", str(STEPS_A_SECOND), ""]
            process = stack.enter_context(subprocess.Popen([*command, made.address]))
            stack.callback(process.terminate)
            made.wait_for_workers(1)
            found.append(made)
        yield found


@asynccontextmanager
async def _sides(made: Sequence[Runtime]) -> AsyncIterator[list[Side]]:
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(each.address)) for each in made]
        yield [await Side.opened(runtime_pb2_grpc.RuntimeServiceStub(channel)) for channel in channels]


async def compare(
    made: Sequence[Runtime], num_rounds: int, on_round: Callable[[str], None], num_tokens: int = NUM_TOKENS
) -> list[Side]:
    """Measures so many rounds of each, after one that does not count."""
    async with _sides(made) as sides:
        for side in sides:
            await side.measure(num_tokens)
            side.ages.clear()
        for order in in_turn(sides, num_rounds):
            for side in order:
                await side.measure(num_tokens)
            on_round("ages of tokens")
        return sides


def figures(sides: Sequence[Side], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By percentile: milliseconds of each side, in the mean over rounds, and the ratio with its interval."""
    found = {}
    for name, percentile in PERCENTILES.items():
        # [sides, rounds]
        milliseconds = np.array([[1e3 * np.percentile(each, percentile) for each in side.ages] for side in sides])
        ratio = intervals.of_mean(np.log(milliseconds[1] / milliseconds[0]).tolist())
        found[f"age of a token, {name}"] = {
            "ms": dict(zip(names, milliseconds.mean(axis=1).tolist(), strict=True)),
            "ratio": float(np.exp(ratio.estimate)),
            "interval_95": [float(np.exp(end)) for end in (ratio.low, ratio.high)],
            "bound": BOUND,
        }
    return found


def verdicts(found: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    return [at_most(name, "ratio", Precise(each["ratio"]), Precise(each["bound"])) for name, each in found.items()]
