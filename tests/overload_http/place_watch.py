"""Samples of /metrics: how many were worked on, and how many waited."""

import asyncio

from tests.integration.processes import Process
from tests.leavers_http.shim_watch import samples

_SAMPLE_SECONDS = 0.1


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
            self.longest_line = max(self.longest_line, int(found["kakeya_http_waiting_requests"]))
            self.most_in_flight = max(self.most_in_flight, int(found["kakeya_http_in_flight_requests"]))
            self.num_samples += 1
            await asyncio.sleep(_SAMPLE_SECONDS)
