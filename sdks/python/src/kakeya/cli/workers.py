"""`kakeya workers`: the workers of all pools, and the byte ledger."""

from argparse import Namespace

from kakeya.cli import admin_command, duration
from kakeya.cli.admin_calls import AdminCalls
from kakeya.cli.admin_command import Verb
from kakeya.cli.byte_count import Bytes
from kakeya.cli.document import document
from kakeya.cli.table import Cell, print_list
from kakeya_stubs.admin.v1 import admin_pb2 as pb

SUMMARY = "list the workers of all pools and what is reserved on them"

_HEADER = (
    "WORKER", "POOL", "MODEL", "WEIGHTS", "ADDRESS", "SESSIONS", "LANES", "RESERVED BYTES", "SLAB BYTES",
    "KV LIVE BYTES", "RSS BYTES", "HEARTBEAT",
)  # fmt: skip


def main(argv: list[str]) -> int:
    verbs = [Verb("list", "list workers", admin_command.json_flag, _list)]
    return admin_command.run("workers", SUMMARY, verbs, argv)


def _list(admin: AdminCalls, flags: Namespace) -> int:
    found = admin.call("ListWorkers", pb.ListWorkersRequest()).workers
    workers = sorted(found, key=lambda worker: (worker.pool, worker.worker_id))
    documents = [document(worker) for worker in workers]
    print_list(documents, _HEADER, [_row(worker) for worker in workers], as_json=flags.json, empty="no workers")
    return 0


def _row(worker: pb.WorkerStatus) -> tuple[Cell, ...]:
    return (
        worker.worker_id,
        worker.pool,
        worker.model,
        worker.weights + (", exact" if worker.exact else ""),
        worker.address,
        worker.num_sessions,
        worker.num_lanes,
        Bytes(worker.reserved_bytes),
        Bytes(worker.slab_bytes),
        Bytes(worker.kv_live_bytes),
        Bytes(worker.rss_bytes) if worker.rss_bytes else "",
        f"{duration.show(worker.last_heartbeat_age_seconds)} ago",
    )
