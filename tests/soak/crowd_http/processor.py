"""Processor time: of the processes of a runtime, and of all that the machine does beside them."""

import psutil
from redis import Redis

from tests.integration.processes import Runtime

_HERE = "clients"


class ProcessorWatch:
    """Counts from when it is made."""

    def __init__(self, made: Runtime) -> None:
        with Redis.from_url(made.redis.url, protocol=2) as store:
            redis = int(store.info("server")["process_id"])
        kinds = {"shim": made.shims, "router": made.routers, "worker": made.workers}
        pids = {kind: [each.process.pid for each in processes] for kind, processes in kinds.items()}
        self._processes = {
            kind: [psutil.Process(pid) for pid in those] for kind, those in {**pids, "redis": [redis]}.items()
        } | {_HERE: [psutil.Process()]}
        self._began, self._machine_began = self._own(), _busy_seconds()

    def seconds(self) -> dict[str, float]:
        """By kind of process; "others" is what does not belong to this run."""
        found = {kind: seconds - self._began[kind] for kind, seconds in self._own().items()}
        return found | {"others": max(0.0, _busy_seconds() - self._machine_began - sum(found.values()))}

    def _own(self) -> dict[str, float]:
        return {kind: sum(map(_seconds, those)) for kind, those in self._processes.items()}


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))
