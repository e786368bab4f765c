"""What a plain chat request with an answer of one token costs the HTTP shim and the router, by processor time.

One client asks over one connection, one request after the other, in groups; the worker has no model
(worker_without_model.py). What is compared is processor time as the scheduler counts it (schedstat), of all threads, so
whoever else is on the machine hardly matters. It holds what the processes do by themselves meanwhile, such as the
router's heartbeats.

Before the first request it is read how long the shim took until it was ready.

Exits with 1 when the shim takes more than 4 ms a request or the router more than 6 ms, which is the upper end of the
95 % interval over groups, or when the shim took more than 1.5 s to be ready.
"""

import json
from collections.abc import Callable
from http.client import HTTPConnection

from kakeya_bench.compare.processes import cpu_seconds_of
from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import at_most
from kakeya_bench.statistics import intervals
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.calls.http_overhead import runtime_without_model
from tests.benchmarks.calls.worker_without_model import CHAT_MODEL
from tests.integration.processes import Runtime

BOUND_MS = {"shim": 4.0, "router": 6.0}
BOUND_READY_SECONDS = 1.5
MESSAGES = [{"role": "user", "content": "What does a session cost that lives on the server?"}]
_NUM_WARM = 200
_CALL_SECONDS = 30.0


class RequestSettings(BenchSettings):
    groups: int = setting(20, "groups of requests", reason="half a minute", metavar="N", ge=2)
    requests: int = setting(100, "requests of a group", reason="a second", metavar="N", ge=1)


def ask(connection: HTTPConnection) -> None:
    fields = {"model": CHAT_MODEL, "messages": MESSAGES, "max_tokens": 1, "temperature": 0}
    connection.request("POST", "/v1/chat/completions", json.dumps(fields), {"content-type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    assert answer["usage"]["completion_tokens"] == 1, answer


def measured(
    made: Runtime, num_groups: int, num_requests: int, on_group: Callable[[str], None]
) -> dict[str, list[float]]:
    """Milliseconds a request, by process, of each group."""
    pids = {"shim": made.shims[0].process.pid, "router": made.routers[0].process.pid}
    host, _, port = made.shims[0].address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=_CALL_SECONDS)
    for _ in range(_NUM_WARM):
        ask(connection)
    found: dict[str, list[float]] = {name: [] for name in pids}
    for _ in range(num_groups):
        before = {name: cpu_seconds_of(pid) for name, pid in pids.items()}
        for _ in range(num_requests):
            ask(connection)
        for name, pid in pids.items():
            found[name].append((cpu_seconds_of(pid) - before[name]) * 1e3 / num_requests)
        on_group("groups of requests")
    connection.close()
    return found


@bench.command(RequestSettings)
def measure(settings: RequestSettings, stage: Stage) -> Found:
    step = stage.steps(settings.groups, start=0.1)
    with runtime_without_model(stage.directory) as made:
        ready_seconds = cpu_seconds_of(made.shims[0].process.pid)
        found = measured(made, settings.groups, settings.requests, step)
    verdicts = [at_most("ready", "seconds until it was:", Precise(ready_seconds), Precise(BOUND_READY_SECONDS))]
    document: dict[str, object] = {"shim_ready_cpu_seconds": ready_seconds}
    for name, bound in BOUND_MS.items():
        mean = intervals.of_mean(found[name])
        document[name] = {
            "cpu_ms": mean.estimate,
            "interval_95_ms": [mean.low, mean.high],
            "by_group_ms": found[name],
            "bound_ms": bound,
        }
        verdicts.append(at_most(name, "upper end of the interval, ms a request:", Precise(mean.high), Precise(bound)))
    return {"groups": settings.groups, "requests_per_group": settings.requests, **document}, verdicts
