"""Workers with their slabs, lane by lane: a letter each, as full as its session's bytes."""

from rich.text import Text

from kakeya import WatchedRuntime, WatchedSession, WatchedWorker
from kakeya.cli.output import byte_count
from kakeya.cli.output.table import printable

_LEVELS = "▁▂▃▄▅▆▇█"
_FREE = "·"
_MAX_LANES = 256


def lines(runtime: WatchedRuntime) -> list[Text]:
    """Two for each worker, by pool and id; and the queue's, where calls wait."""
    found: list[Text] = []
    for worker in sorted(runtime.workers.values(), key=lambda worker: (worker.pool, worker.worker_id)):
        found += [_facts(worker), _bar(worker, runtime.lanes(worker))]
    for queue in runtime.queues.values():
        if queue.num_waiting:
            whose = ", ".join(f"{printable(tenant)} {number:,}" for tenant, number in queue.tenants.items() if tenant)
            waiting = f"queue of {queue.pool}: {queue.num_waiting:,}"
            found.append(Text(f"{waiting} ({whose})" if whose else waiting, "yellow"))
    return found or [Text("no worker is shown to this key", "dim")]


def _facts(worker: WatchedWorker) -> Text:
    state = " draining" * worker.draining + f" silent for {worker.late_seconds:.0f} s" * bool(worker.late_seconds)
    return Text.assemble(
        (printable(worker.worker_id), "bold"),
        f" {printable(worker.model)} {worker.num_sessions:,} of {worker.num_lanes:,} lanes, "
        f"{byte_count.show(worker.kv_live_bytes)} live of {byte_count.show(worker.slab_bytes)}",
        (state, "yellow"),
    )


def _bar(worker: WatchedWorker, lanes: list[WatchedSession | None]) -> Text:
    most = max(1, (worker.sink + worker.window) * worker.kv_bytes_per_token)
    bar = Text()
    for session in lanes[:_MAX_LANES]:
        if session is None:
            bar.append(_FREE, "dim")
        else:
            level = min(len(_LEVELS) - 1, session.kv_live_bytes * len(_LEVELS) // most)
            bar.append(_LEVELS[level], "yellow" if session.busy else "cyan")
    if len(lanes) > _MAX_LANES:
        bar.append(f" and {len(lanes) - _MAX_LANES:,} more", "dim")
    return bar
