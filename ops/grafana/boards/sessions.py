"""Sessions by state, and the memory that they hold."""

from ops.grafana.board import Board, Panel, Query
from ops.grafana.promql import rate

SESSIONS = Board(
    "kakeya-sessions",
    "Kakeya: sessions and memory",
    "Sessions by state, and the KV that they hold. Memory follows lanes, not the length of histories.",
    {
        "Sessions": [
            Panel(
                "Sessions by state",
                "Running have an operation, idle a lane and none, parked no lane.",
                [Query("max by (state) (kakeya_router_sessions)", "{{state}}")],
                is_stacked=True,
            ),
            Panel(
                "Opened a second",
                "New ones, and forks of others.",
                [Query(rate("kakeya_router_opened_sessions_total", by="kind"), "{{kind}}")],
                "ops",
            ),
            Panel(
                "Expired a second",
                "Closed since their time had come.",
                [Query(rate("kakeya_router_expired_sessions_total"))],
                "ops",
            ),
            Panel(
                "Lanes",
                "Of all workers.",
                [Query("max by (state) (kakeya_router_lanes)", "{{state}}")],
                is_stacked=True,
            ),
            Panel(
                "Parked a second",
                "By why. Those for room say that lanes are few.",
                [Query(rate("kakeya_router_park_seconds_count", by="reason"), "{{reason}}")],
                "ops",
            ),
            Panel(
                "Resumed a second",
                "By why.",
                [Query(rate("kakeya_router_resume_seconds_count", by="reason"), "{{reason}}")],
                "ops",
            ),
        ],
        "Memory": [
            Panel(
                "KV bytes",
                "Live: of committed tokens. Reserved: of lanes that are given. Free: of the others.",
                [
                    Query("max(kakeya_router_kv_live_bytes)", "live"),
                    Query("max(kakeya_router_kv_reserved_bytes)", "reserved"),
                    Query("max(kakeya_router_kv_free_bytes)", "free"),
                ],
                "bytes",
            ),
            Panel(
                "Live bytes as workers say",
                "Equal to the routers' total under the same heartbeats.",
                [
                    Query("sum(kakeya_worker_heartbeat_kv_live_bytes)", "heartbeats"),
                    Query("sum(kakeya_worker_kv_live_bytes)", "now"),
                ],
                "bytes",
            ),
            Panel(
                "Snapshots",
                "Bytes of all snapshots that sessions have.",
                [Query("sum(max by (pool) (kakeya_router_snapshot_bytes))")],
                "bytes",
            ),
            Panel(
                "Forgotten a second",
                "Tokens that have left windows. Their sessions still know their sinks.",
                [Query(rate("kakeya_worker_forgotten_tokens_total"))],
                "ops",
            ),
            Panel(
                "Appended and generated a second",
                "Tokens, as routers count them.",
                [
                    Query(rate("kakeya_router_appended_tokens_total"), "appended"),
                    Query(rate("kakeya_router_generated_tokens_total"), "generated"),
                ],
                "ops",
            ),
        ],
    },
)
