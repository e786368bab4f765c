"""`kakeya workers`: the workers of all pools, the byte ledger, and emptying one."""

import sys
import time
from argparse import ArgumentParser, Namespace

from kakeya.cli.commands import admin_command, watched_list
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.commands.admin_command import Verb
from kakeya.cli.commands.watched_list import WatchedList
from kakeya.cli.output import duration
from kakeya.cli.output.byte_count import Bytes
from kakeya.cli.output.document import document
from kakeya.cli.output.table import Cell, print_list, printable
from kakeya_stubs.admin.v1 import admin_pb2 as pb

SUMMARY = "list the workers of all pools and what is reserved on them, and empty one"

_HEADER = (
    "WORKER", "POOL", "MODEL", "WEIGHTS", "ADDRESS", "SESSIONS", "LANES", "RESERVED BYTES", "SLAB BYTES",
    "KV LIVE BYTES", "RSS BYTES", "HEARTBEAT", "STATE",
)  # fmt: skip
_LOOK_SECONDS = 0.5
_DRAIN_SUMMARY = "empty a worker: until it is restarted no session is placed on it, and idle ones are parked or moved"


def main(argv: list[str]) -> int:
    verbs = [
        Verb("list", "list workers", _list_flags, _list),
        Verb("drain", _DRAIN_SUMMARY, _drain_flags, _drain),
    ]
    return admin_command.run("workers", SUMMARY, verbs, argv)


def _list_flags(parser: ArgumentParser) -> None:
    admin_command.json_flag(parser)
    watched_list.flag(parser)


def _list(admin: AdminCalls, flags: Namespace) -> int:
    if flags.watch:
        return _WATCHED.watch(admin, as_json=flags.json)
    found = admin.call("ListWorkers", pb.ListWorkersRequest()).workers
    workers = sorted(found, key=lambda worker: (worker.pool, worker.worker_id))
    documents = [document(worker) for worker in workers]
    print_list(documents, _HEADER, [_row(worker) for worker in workers], as_json=flags.json, empty="no workers")
    return 0


def _drain_flags(parser: ArgumentParser) -> None:
    parser.add_argument("worker_id", metavar="WORKER", help="its id, as `kakeya workers list` shows it")
    parser.add_argument(
        "--pool", default="", metavar="NAME", help="of the worker, where several pools have one so named"
    )
    parser.add_argument("--undo", action="store_true", help="let it have sessions again")
    parser.add_argument("--wait", action="store_true", help="until it is empty or gone; say how many sessions are left")
    parser.add_argument(
        "--timeout", type=duration.parse, metavar="TIME", help="with --wait: fail after so long, such as 90s or 15m"
    )


def _drain(admin: AdminCalls, flags: Namespace) -> int:
    request = pb.DrainWorkerRequest(worker_id=flags.worker_id, pool=flags.pool, undo=flags.undo)
    worker = admin.call("DrainWorker", request).worker
    name = printable(worker.worker_id)
    if flags.undo:
        print(f"{name} takes sessions again")
        return 0
    print(f"draining {name}, {_left(worker.num_sessions)}", flush=True)
    return _wait(admin, worker, flags.timeout) if flags.wait else 0


def _wait(admin: AdminCalls, worker: pb.WorkerStatus, timeout_seconds: int | None) -> int:
    """Until it is empty, gone, or taken back by another operator."""
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    name, num_left = printable(worker.worker_id), worker.num_sessions
    while True:
        found = admin.call("ListWorkers", pb.ListWorkersRequest()).workers
        now = next((each for each in found if each.incarnation == worker.incarnation), None)
        if now is None or not now.num_sessions:
            print(f"{name} is gone" if now is None else f"{name} is empty")
            return 0
        if not now.draining:
            return _fail(f"{name} takes sessions again: the drain was undone")
        if now.num_sessions != num_left:
            num_left = now.num_sessions
            print(f"draining {name}, {_left(num_left)}", flush=True)
        if until is not None and time.monotonic() >= until:
            return _fail(f"{name}: {_left(num_left)} after {duration.show(timeout_seconds or 0)}; it goes on draining")
        time.sleep(_LOOK_SECONDS)


def _left(num_sessions: int) -> str:
    return f"{num_sessions:,} session{'' if num_sessions == 1 else 's'} left"


def _fail(message: str) -> int:
    print(f"kakeya workers: error: {message}", file=sys.stderr)
    return admin_command.EXIT_FAILURE


def _row(worker: pb.WorkerStatus) -> tuple[Cell, ...]:
    return (
        worker.worker_id,
        worker.pool,
        worker.model,
        worker.weights + (", exact" if worker.exact else ""),
        worker.address or f"{len(worker.tunnels)} tunnels",
        worker.num_sessions,
        worker.num_lanes,
        Bytes(worker.reserved_bytes),
        Bytes(worker.slab_bytes),
        Bytes(worker.kv_live_bytes),
        Bytes(worker.rss_bytes) if worker.rss_bytes else "",
        f"{duration.show(worker.last_heartbeat_age_seconds)} ago",
        "draining" if worker.draining else "",
    )


_WATCHED = WatchedList(
    kind="worker",
    news=lambda response: response.workers,
    gone=lambda response: response.gone_incarnations,
    name=lambda worker: worker.incarnation,
    header=_HEADER,
    row=_row,
    order=lambda worker: (worker.pool, worker.worker_id),
)
