"""Single requests, each a conversation of its own, at two shims side by side: what live sessions cost them."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from itertools import count
from statistics import median

from tests.soak.crowd_http.client import Broken, Client, Refused, written
from tests.soak.crowd_http.ground import Ground
from tests.soak.crowd_http.part import Facts, Part
from tests.soak.crowd_http.processor import ProcessorWatch
from tests.soak.crowd_http.talk import asked
from tests.soak.progress import Progress

LANES = 64
MIN_RATIO = 0.95
_NUM_CONNECTIONS = 8
_BLOCK = 100
_FIELDS = asked(32)  # as long as those of overload-http
_SIDES = ("off", "on")
_NOTHING = "nothing"
"""Is said of a session where there are no live ones."""
_MAX_SHOWN = 300


class SinglesRun(Part):
    """Blocks of requests, in turn with live sessions and without, the order changing from pair to pair: what else the
    machine does meanwhile takes from both. It is late if less than 0.95 times as many requests a second are answered
    with live sessions, over all blocks or at the median of pairs.
    """

    def __init__(self, ground: Ground, progress: Progress) -> None:
        super().__init__(ground, progress)
        off, on = ground.addresses
        self._addresses = {"off": off, "on": on}
        self._numbers = count()

    async def run(self, num_requests: int, left_seconds: float) -> Facts:
        """Facts. After `left_seconds` nothing may be left.

        Args:
            num_requests: of each side.
        """
        num_blocks = max(1, num_requests // _BLOCK)
        size = num_requests // num_blocks
        self.begin(2 * num_blocks * size, "requests")
        seconds: dict[str, list[float]] = {side: [] for side in _SIDES}
        processor: dict[str, defaultdict[str, float]] = {side: defaultdict(float) for side in _SIDES}
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client()) for _ in range(_NUM_CONNECTIONS)]
            for side in _SIDES:  # the first of a process loads what all need
                await self._block(clients, side, 4 * _NUM_CONNECTIONS, is_counted=False)
            for number in range(num_blocks):
                for side in _SIDES if number % 2 else reversed(_SIDES):
                    watch = ProcessorWatch(self.made)
                    seconds[side].append(await self._block(clients, side, size))
                    for kind, used in watch.seconds().items():
                        processor[side][kind] += used
        ratio = sum(seconds["off"]) / sum(seconds["on"])
        of_pairs = median(map(_ratio, seconds["off"], seconds["on"]))
        if (least := min(ratio, of_pairs)) < MIN_RATIO:
            self.late.append(f"{least:.3f} times as many requests a second with live sessions (bound: {MIN_RATIO})")
        _, settled_seconds = await asyncio.to_thread(self.leave_nothing, left_seconds)
        self.read_logs()
        return {
            "requests_of_each": num_blocks * size,
            "connections": _NUM_CONNECTIONS,
            "lanes": LANES,
            "blocks_of_each": num_blocks,
            "requests_per_second": {side: round(num_blocks * size / sum(seconds[side]), 1) for side in _SIDES},
            "ratio": round(ratio, 4),
            "median_ratio_of_pairs": round(of_pairs, 4),
            "processor_ratio": round(_of_run(processor["off"]) / _of_run(processor["on"]), 4),
            "processor_ms_per_request": {
                side: {kind: round(1e3 * used / (num_blocks * size), 2) for kind, used in processor[side].items()}
                for side in _SIDES
            },
            "by_state": self.tally.by_what(),
            "settled_seconds": round(settled_seconds, 1),
        }

    async def _block(self, clients: list[Client], side: str, size: int, *, is_counted: bool = True) -> float:
        """How many seconds it took."""
        requests = iter([written([self._question()], **_FIELDS) for _ in range(size)])
        headers: list[str] = []
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(self._ask_on(client, self._addresses[side], requests, headers))
        seconds = time.perf_counter() - began
        if is_counted:
            for header in headers:
                state = header.partition(";")[0]
                self.tally.count(side, state, header.rpartition("why=")[2])
                if state != ("new" if side == "on" else _NOTHING):
                    self.tally.violate(f"live sessions are {side}, and a single request got {header!r}", kind=side)
        return seconds

    async def _ask_on(self, client: Client, address: str, requests: Iterator[bytes], headers: list[str]) -> None:
        for request in requests:
            try:
                given, body = await client.exchange(address, request)
            except (Refused, Broken) as error:
                self.tally.violate(f"{error}"[:_MAX_SHOWN], kind="refused")
                continue
            headers.append(given.get("kakeya-session", _NOTHING))
            if json.loads(body)["choices"][0]["finish_reason"] != "length":
                self.tally.violate(f"an answer that is not whole: {body!r}"[:_MAX_SHOWN], kind="not whole")

    def _question(self) -> dict[str, str]:
        return {"role": "user", "content": f"Question {next(self._numbers)}: what is the name of the river?"}


def _ratio(off_seconds: float, on_seconds: float) -> float:
    return off_seconds / on_seconds


def _of_run(used: Mapping[str, float]) -> float:
    return sum(seconds for kind, seconds in used.items() if kind != "others")
