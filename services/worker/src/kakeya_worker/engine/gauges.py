"""Gauges of the slab, taken between two steps: a lane's bytes and their sum are of one moment."""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from kakeya_shared.metrics.meters import Meters

# Prometheus waits for ten by default. A step takes seconds on a small host with a large model.
_STEP_SECONDS = 8.0


@dataclass(frozen=True)
class SlabNow:
    """What the engine holds between two steps.

    Attributes:
        live_bytes: by the index of the lane, of lanes in use.
        num_appends, num_generates, num_paused: operations that run; the last are generates whose reader lags.
    """

    live_bytes: Mapping[int, int]
    lane_bytes: int
    num_lanes: int
    num_appends: int
    num_generates: int
    num_paused: int


class Engine(Protocol):
    """What is asked of `kakeya_worker.engine.engine.Engine`."""

    def slab_now(self) -> "Future[SlabNow]": ...


class SlabGauges:
    """Set before each reading, once there is an engine."""

    def __init__(self, meters: Meters) -> None:
        self._live = meters.gauge(
            "kakeya_worker_kv_live_bytes",
            "KV of committed tokens: the sum over kakeya_worker_lane_kv_live_bytes, taken between two steps with it. "
            "NaN where no step has ended within 8 s.",
            unit="bytes",
        )
        self._of_lanes = meters.gauge(
            "kakeya_worker_lane_kv_live_bytes",
            "KV of committed tokens in each lane that is in use, by its index in the slab.",
            "lane",
            unit="bytes",
        )
        self._reserved = meters.gauge(
            "kakeya_worker_kv_reserved_bytes",
            "KV of the lanes that are in use, and what the worker's proposer keeps beside it.",
            unit="bytes",
        )
        self._free = meters.gauge("kakeya_worker_kv_free_bytes", "Likewise, of the lanes that are free.", unit="bytes")
        self._lanes = meters.gauge("kakeya_worker_lanes", 'Lanes, "used" and "free".', "state", unit="lanes")
        self._operations = meters.gauge(
            "kakeya_worker_operations",
            'Operations that run: "append", "generate", and of the latter those "paused" since their reader lags.',
            "kind",
            unit="operations",
        )

    def refresher(self, engine: Engine) -> Callable[[], None]:
        """What is to be called before each reading, in any thread but the engine's."""

        def refresh() -> None:
            self._clear()
            try:
                now = engine.slab_now().result(_STEP_SECONDS)
            except TimeoutError:
                for gauge in (self._live, self._reserved, self._free):
                    gauge.set(math.nan)
            else:
                self._show(now)

        return refresh

    def _clear(self) -> None:
        for gauge in (self._of_lanes, self._lanes, self._operations):
            gauge.clear()

    def _show(self, now: SlabNow) -> None:
        num_used = len(now.live_bytes)
        self._live.set(sum(now.live_bytes.values()))
        for lane, live_bytes in now.live_bytes.items():
            self._of_lanes.labels(str(lane)).set(live_bytes)
        self._reserved.set(num_used * now.lane_bytes)
        self._free.set((now.num_lanes - num_used) * now.lane_bytes)
        self._lanes.labels("used").set(num_used)
        self._lanes.labels("free").set(now.num_lanes - num_used)
        self._operations.labels("append").set(now.num_appends)
        self._operations.labels("generate").set(now.num_generates)
        self._operations.labels("paused").set(now.num_paused)
