"""What was lost, what that cost, and what is written so that nothing is."""

from ops.grafana.board import Board, Panel, Query
from ops.grafana.promql import quantiles, rate

RECOVERY = Board(
    "kakeya-recovery",
    "Kakeya: recovery and durability",
    "Workers that were lost, what that cost, and what is written so that nothing is lost with them.",
    {
        "Lost and found": [
            Panel(
                "Workers lost",
                "In the last hour.",
                [Query("sum(increase(kakeya_router_lost_workers_total[1h]))")],
                kind="stat",
            ),
            Panel(
                "Sessions lost",
                "In the last hour: their history is nowhere.",
                [Query("sum(increase(kakeya_router_lost_sessions_total[1h]))")],
                kind="stat",
            ),
            Panel(
                "Invariants violated",
                "In the last hour. One is too many.",
                [Query("sum(increase(kakeya_worker_invariant_violations_total[1h]))")],
                kind="stat",
            ),
            Panel(
                "Taken over",
                "Operations of routers that had vanished, in the last hour.",
                [Query("sum(increase(kakeya_router_taken_over_operations_total[1h]))")],
                kind="stat",
            ),
            Panel(
                "Leases lost",
                "In the last hour: workers that routers had given up, and that came back.",
                [Query("sum(increase(kakeya_worker_lost_leases_total[1h]))")],
                kind="stat",
            ),
            Panel(
                "Redis failures",
                "In the last hour.",
                [Query("sum(increase(kakeya_router_redis_failures_total[1h]))")],
                kind="stat",
            ),
            Panel(
                "Recoveries a second",
                "Operations that had lost their lane and went on, by why.",
                [Query(rate("kakeya_router_recovery_seconds_count", by="reason"), "{{reason}}")],
                "ops",
            ),
            Panel("Pauses", "Seconds that a client saw nothing.", quantiles("kakeya_router_recovery_seconds"), "s"),
            Panel(
                "Moves a second",
                "To other workers, and attempts that left a session where it was.",
                [Query(rate("kakeya_router_move_seconds_count", by="outcome"), "{{outcome}}")],
                "ops",
            ),
        ],
        "Durability": [
            Panel(
                "Snapshots a second",
                "Written, and failed.",
                [Query(rate("kakeya_router_snapshot_seconds_count", by="outcome"), "{{outcome}}")],
                "ops",
            ),
            Panel(
                "Seconds of a snapshot",
                "Copied, written and read back.",
                quantiles("kakeya_worker_snapshot_write_seconds"),
                "s",
            ),
            Panel(
                "Written a second",
                "Bytes of snapshots.",
                [Query(rate("kakeya_worker_snapshot_written_bytes_total"))],
                "bytes",
            ),
            Panel(
                "Restores a second",
                "Lanes made of snapshots, and failures.",
                [Query(rate("kakeya_worker_restore_seconds_count", by="outcome"), "{{outcome}}")],
                "ops",
            ),
            Panel(
                "Journal groups a second",
                "Groups of generated tokens that were written.",
                [Query(rate("kakeya_router_journal_groups_total"))],
                "ops",
            ),
            Panel(
                "Heartbeats a second",
                "By what became of them.",
                [Query(rate("kakeya_worker_heartbeat_seconds_count", by="outcome"), "{{outcome}}")],
                "ops",
            ),
        ],
    },
)
