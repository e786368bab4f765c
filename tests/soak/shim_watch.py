"""What an HTTP shim's process holds, and what it says that it works on."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.request import urlopen

import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.processes import Process

_REQUEST_SECONDS = 10.0
_SAMPLE_SECONDS = 0.1
_IN_FLIGHT, _WAITING = "kakeya_http_in_flight_requests", "kakeya_http_waiting_requests"


@dataclass(frozen=True)
class Holdings:
    """Of the process at one moment."""

    num_files: int
    num_threads: int
    resident_bytes: int


def holdings(shim: Process) -> Holdings:
    process = psutil.Process(shim.process.pid)
    return Holdings(process.num_fds(), process.num_threads(), process.memory_info().rss)


def samples(shim: Process) -> dict[str, float]:
    """What /metrics says, summed over labels."""
    with urlopen(f"http://{shim.address}/metrics", timeout=_REQUEST_SECONDS) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def unanswered(shims: Sequence[Process]) -> list[str]:
    """Requests that shims work on, or that wait there."""
    gauges = [(name, samples(shim)[name]) for shim in shims for name in (_IN_FLIGHT, _WAITING)]
    return [f"{name} is {number:g}" for name, number in gauges if number]


class PlaceWatch:
    """Attributes:
    longest_line: requests that waited at once.
    most_in_flight: requests that were worked on at once.
    """

    def __init__(self, shim: Process) -> None:
        self._shim = shim
        self.longest_line = self.most_in_flight = self.num_samples = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            found = await asyncio.to_thread(samples, self._shim)
            self.longest_line = max(self.longest_line, int(found[_WAITING]))
            self.most_in_flight = max(self.most_in_flight, int(found[_IN_FLIGHT]))
            self.num_samples += 1
            await asyncio.sleep(_SAMPLE_SECONDS)
