"""Who uses what."""

from ops.grafana.board import Board, Panel, Query
from ops.grafana.promql import rate

TENANTS = Board(
    "kakeya-tenants",
    "Kakeya: tenants",
    "Who uses what. The first hundred tenants have names, others are one.",
    {
        "Tenants": [
            Panel(
                "Sessions with a lane",
                "By tenant.",
                [Query("max by (tenant) (kakeya_router_tenant_sessions)", "{{tenant}}")],
                is_stacked=True,
            ),
            Panel(
                "KV reserved",
                "Bytes of lanes, by tenant.",
                [Query("max by (tenant) (kakeya_router_tenant_kv_reserved_bytes)", "{{tenant}}")],
                "bytes",
                is_stacked=True,
            ),
            Panel(
                "Waiting",
                "Calls that wait for a lane, by tenant. Operations that have lost theirs are in Queues alone.",
                [Query("max by (tenant) (kakeya_router_tenant_queue_length)", "{{tenant}}")],
                is_stacked=True,
            ),
            Panel(
                "Tokens a second",
                "Appended and generated, by tenant.",
                [Query(rate("kakeya_router_tenant_tokens_total", by="tenant, kind"), "{{tenant}} {{kind}}")],
                "ops",
            ),
            Panel(
                "Queues",
                "Calls of all tenants that wait for a lane, by pool.",
                [Query("max by (pool) (kakeya_router_queue_length)", "{{pool}}")],
            ),
        ],
    },
)
