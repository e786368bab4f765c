"""What a caller waits for."""

from ops.grafana.board import Board, Panel, Query
from ops.grafana.promql import mean, quantile, quantiles, rate

LATENCY = Board(
    "kakeya-latency",
    "Kakeya: latency",
    "What a caller waits for, from the queue to the last token.",
    {
        "Answers": [
            Panel(
                "Time to first token",
                "From a call's coming in; waits for a lane and a turn's prefill are in it.",
                quantiles("kakeya_router_time_to_first_token_seconds"),
                "s",
            ),
            Panel(
                "Time a token",
                "Of an answer's tokens but the first.",
                quantiles("kakeya_router_time_per_output_token_seconds"),
                "s",
            ),
            Panel(
                "Prefill a token",
                "Of an append's tokens, with waits for others' rows.",
                quantiles("kakeya_worker_prefill_token_seconds"),
                "s",
            ),
        ],
        "On the way": [
            Panel(
                "Waits for a lane",
                "Of those that queued, with a lane in the end or without.",
                [
                    Query(quantile(0.5, "kakeya_router_queue_wait_seconds"), "p50"),
                    Query(quantile(0.95, "kakeya_router_queue_wait_seconds"), "p95"),
                ],
                "s",
            ),
            Panel("Redis", "Seconds of a call.", quantiles("kakeya_router_redis_seconds"), "s"),
            Panel(
                "Journal",
                "From a group's first token to its being in Redis.",
                quantiles("kakeya_router_journal_lag_seconds"),
                "s",
            ),
            Panel(
                "Calls a second",
                "Of the public API and the workers' registry, by method.",
                [Query(rate("kakeya_router_calls_total", by="method"), "{{method}}")],
                "reqps",
            ),
            Panel(
                "Seconds of calls",
                "On average, by method.",
                [Query(mean("kakeya_router_call_seconds", by="method"), "{{method}}")],
                "s",
            ),
            Panel(
                "Refused a second",
                "Calls that did not end well, by reason.",
                [Query(rate("kakeya_router_calls_total", by="reason", where='{reason!="OK"}'), "{{reason}}")],
                "reqps",
            ),
        ],
    },
)
