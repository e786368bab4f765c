"""Writes the reference of every metric, generated from the declarations themselves.

python scripts/generate_metrics.py docs/metrics.md
"""

import sys
from pathlib import Path

from kakeya_http_shim import metrics as http
from kakeya_router import metrics as router
from kakeya_router.workers.fleet_gauges import FleetGauges
from kakeya_shared.metrics.meters import Buckets, Declaration, Meters
from kakeya_shared.rpc.served_calls import CallMeters
from kakeya_worker import metrics as worker
from kakeya_worker.engine.gauges import SlabGauges
from kakeya_worker.joining.heartbeat_gauges import HeartbeatGauges

HEADER = """# Metrics

What each service shows at `GET /metrics`, in Prometheus's text or, where a reader asks for it, in OpenMetrics. This
page is generated from the declarations (`make docs`).

The HTTP shim shows it where it listens. Router and worker have a port of their own for it, `--metrics-bind`: by default
a free one on loopback, which their log names in the line that says that they listen or serve (`metrics`), and
`kakeya up` in its table. `none` serves it nowhere, and nothing is counted. For Prometheus on another host give each a
fixed port, as in `KAKEYA_ROUTER_METRICS_BIND=0.0.0.0:9464`, on a network that is yours: it is plain HTTP without keys.
It shows names of workers and tenants, and no text.

The same is sent to an OpenTelemetry collector where `OTEL_EXPORTER_OTLP_ENDPOINT` (or
`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`) names one and `OTEL_METRICS_EXPORTER` is not `none`, every
`OTEL_METRIC_EXPORT_INTERVAL` milliseconds (a minute), by gRPC or as `OTEL_EXPORTER_OTLP_PROTOCOL` says by
`http/protobuf`.

- Counters and histograms are each process's own, since its start: sum their rates.
- Gauges of a router that begin with `kakeya_router_` are of the whole runtime, and every router shows the same: take
  `max`, not `sum`. `kakeya_queued_requests` and `kakeya_running_requests` are of one router: sum them.
- A router reads Redis when it is asked, and a worker looks at its lanes between two steps. So what one exposition shows
  agrees: a total is the sum of its parts.
- Heartbeats are numbered. What a router shows of a worker is what that has said with the heartbeat of that number.
- No label names a session, a model or a client. Workers and pools are named, and tenants, of which the first hundred
  have values of their own.
- `process_*` and `python_*` come from the Prometheus client: processor time, memory, files, garbage collection.
- In OpenMetrics, a bucket of a histogram names the trace of a call that fell into it, where that was sampled.
"""


def metrics_page() -> str:
    """The whole page."""
    tables = [_table(service, declared) for service, declared in declarations().items()]
    return "\n".join([HEADER, *tables, _bucket_table(declarations())])


def declarations() -> dict[str, list[Declaration]]:
    """Of each service."""
    return {"router": _of_router(), "worker": _of_worker(), "HTTP shim": _of_http()}


def _of_router() -> list[Declaration]:
    metrics = router.RouterMetrics(Meters())
    FleetGauges(metrics)
    CallMeters(metrics.meters, router.PREFIX)
    return metrics.meters.declarations


def _of_worker() -> list[Declaration]:
    meters = worker.WorkerMetrics(Meters()).meters
    SlabGauges(meters)
    HeartbeatGauges(meters)
    CallMeters(meters, worker.PREFIX)
    return meters.declarations


def _of_http() -> list[Declaration]:
    meters = Meters()
    http.Metrics(meters)
    return meters.declarations


def _table(service: str, declared: list[Declaration]) -> str:
    head = ["| name | kind | unit | labels | what it is |", "| --- | --- | --- | --- | --- |"]
    rows = [
        f"| `{each.name}` | {each.kind} | {each.unit} | {', '.join(f'`{label}`' for label in each.label_names)} "
        f"| {each.meaning.replace('|', chr(92) + '|')} |"
        for each in sorted(declared, key=lambda each: each.name)
    ]
    return "\n".join([f"## {service}\n", *head, *rows, ""])


def _bucket_table(services: dict[str, list[Declaration]]) -> str:
    users: dict[Buckets, list[str]] = {}
    for declared in services.values():
        for each in declared:
            if each.buckets is not None:
                users.setdefault(each.buckets, []).append(each.name)
    rows = [
        f"| {', '.join(f'`{name}`' for name in names)} | {', '.join(f'{bound:g}' for bound in buckets.bounds)} "
        f"| {buckets.reason} |"
        for buckets, names in users.items()
    ]
    return "\n".join(["## Buckets\n", "| of | upper bounds | why these |", "| --- | --- | --- |", *rows, ""])


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(metrics_page())
