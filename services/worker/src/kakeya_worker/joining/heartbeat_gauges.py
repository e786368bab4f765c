"""What routers were told last, beside what holds now."""

from collections.abc import Callable

from kakeya_shared.metrics.meters import Meters
from kakeya_worker.joining.heartbeat import Heartbeat


class HeartbeatGauges:
    """Set together before each reading."""

    def __init__(self, meters: Meters) -> None:
        self._number = meters.gauge(
            "kakeya_worker_heartbeat_number", "Of the last heartbeat that a router has answered. 0: none yet."
        )
        self._live = meters.gauge(
            "kakeya_worker_heartbeat_kv_live_bytes",
            "The sum over all lanes as that heartbeat has said it: what routers show under its number.",
            unit="bytes",
        )

    def refresher(self, last: Callable[[], Heartbeat]) -> Callable[[], None]:
        """What is to be called before each reading."""

        def refresh() -> None:
            heartbeat = last()
            self._number.set(heartbeat.number)
            self._live.set(heartbeat.kv_live_bytes)

        return refresh
