"""Workers, their slabs, and what they do."""

from ops.grafana.board import Board, Panel, Query
from ops.grafana.promql import WINDOW, mean, quantiles, rate

FLEET = Board(
    "kakeya-fleet",
    "Kakeya: fleet",
    "Workers, their slabs, and what they do.",
    {
        "Now": [
            Panel(
                "Workers",
                "Registered, and neither lost nor draining.",
                [Query('max(kakeya_router_workers{state="ready"})')],
                kind="stat",
            ),
            Panel(
                "Draining",
                "Workers that take no new sessions.",
                [Query('max(kakeya_router_workers{state="draining"})')],
                kind="stat",
            ),
            Panel(
                "Slabs in use",
                "Reserved bytes over all bytes of all slabs. At 1 calls queue.",
                [Query("max(kakeya_kv_utilization_ratio)")],
                "percentunit",
                "stat",
            ),
            Panel("Waiting", "Calls that wait for a lane.", [Query("sum(kakeya_queued_requests)")], kind="stat"),
            Panel("Running", "Operations that have their lane.", [Query("sum(kakeya_running_requests)")], kind="stat"),
            Panel("Redis", "1: it answers all routers.", [Query("min(kakeya_router_redis_up)")], kind="stat"),
        ],
        "Workers": [
            Panel(
                "KV reserved",
                "Bytes of the lanes that are given to sessions, by worker.",
                [Query("max by (worker) (kakeya_router_worker_kv_reserved_bytes)", "{{worker}}")],
                "bytes",
                is_stacked=True,
            ),
            Panel(
                "KV free",
                "Bytes of the lanes that are free, by worker.",
                [Query("max by (worker) (kakeya_router_worker_kv_free_bytes)", "{{worker}}")],
                "bytes",
                is_stacked=True,
            ),
            Panel(
                "Age of heartbeats",
                "A worker is lost after 5 s unless configured.",
                [Query("max by (worker) (kakeya_router_worker_heartbeat_age_seconds)", "{{worker}}")],
                "s",
            ),
            Panel(
                "Resident memory",
                "Of each worker's process.",
                [Query("max by (worker) (kakeya_router_worker_resident_memory_bytes)", "{{worker}}")],
                "bytes",
            ),
            Panel(
                "Tokens a second",
                "Prefilled and generated, by all workers.",
                [
                    Query(rate("kakeya_worker_prefilled_tokens_total"), "prefilled"),
                    Query(rate("kakeya_worker_generated_tokens_total"), "generated"),
                ],
                "ops",
            ),
            Panel(
                "Rows a step",
                "Sessions that share a forward pass, on average. More of them make a token cheaper.",
                [Query(mean("kakeya_worker_step_rows"))],
            ),
            Panel("Steps", "Seconds of a forward pass.", quantiles("kakeya_worker_step_seconds"), "s"),
            Panel(
                "Operations",
                "What runs on workers; paused ones wait for a reader that lags.",
                [Query("sum by (kind) (kakeya_worker_operations)", "{{kind}}")],
                is_stacked=True,
            ),
            Panel(
                "Processor time",
                "Seconds a second of each process.",
                [Query(f"rate(process_cpu_seconds_total[{WINDOW}])", "{{job}} {{instance}}")],
            ),
        ],
    },
)
