"""The processes of a stack, as command lines."""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal

from kakeya_local.stack import child_python
from kakeya_shared.settings.addresses import HostPort

REDIS = "redis"
"""Name of Redis' process."""
ROUTER = "router"
"""Name of the router's process."""
HTTP = "http"
"""Name of the HTTP shim's process."""
PROMETHEUS = "prometheus"
"""Name of Prometheus's process."""
COLLECTOR = "collector"
"""Name of the process of the OpenTelemetry collector."""
OBSERVE = "observe"
"""Folder of the files of these two, in a data directory."""
_KEPT = {"storage.tsdb.retention.time": "7d", "storage.tsdb.retention.size": "1GB"}


class Stage(IntEnum):
    """Processes start in this order and stop in the reverse one: a collector hears of the end of the others."""

    COLLECTOR = 5
    REDIS = 10
    ROUTER = 20
    WORKER = 30
    HTTP = 40
    PROMETHEUS = 50


@dataclass(frozen=True)
class Program:
    """One supervised process.

    Attributes:
        name: also of its log.
        start_seconds: a process that ends earlier counts as failing to start.
    """

    name: str
    stage: Stage
    command: tuple[str, ...]
    start_seconds: int = 5  # a busy machine takes seconds to find out that something cannot start


def redis_program(server: str, port: int, directory: Path, *, persistent: bool) -> Program:
    """Redis on loopback. What it acknowledged is on disk (append-only file, fsync always) if it is persistent."""
    durability = ("--appendonly", "yes", "--appendfsync", "always") if persistent else ("--appendonly", "no")
    command = (server, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--save", "", *durability)
    return Program(REDIS, Stage.REDIS, command)


def router_program(
    bind: HostPort,
    redis_port: int,
    redis_directory: Path | None,
    *,
    auth: str | None,
    insecure: bool,
    metrics_bind: str | None,
) -> Program:
    """The session router.

    Args:
        redis_directory: of Redis' data; None: it keeps none.
        metrics_bind: where it shows its metrics; None: as its variable says.
    """
    redis = f"redis://127.0.0.1:{redis_port}/0"
    command = _kakeya(
        "router", redis=redis, redis_directory=redis_directory, bind=bind, auth=auth, metrics_bind=metrics_bind
    )
    return Program(ROUTER, Stage.ROUTER, (*command, *(["--insecure"] if insecure else [])))


def worker_program(
    name: str,
    router: HostPort,
    *,
    model: str,
    backend: str | None,
    sink: int | None,
    window: int | Literal["max"] | None,
    lanes: int | None,
    slab_bytes: int | None,
    threads: int | None,
    snapshots: Path,
    metrics_bind: str | None,
) -> Program:
    """The worker takes a free port by itself and tells it to the router.

    Args:
        backend: None: as its variable says.
        snapshots: directory of the snapshot store, the same for all workers.
        metrics_bind: where it shows its metrics; None: as its variable says.
    """
    command = _kakeya(
        "worker",
        model=model,
        backend=backend,
        sink=sink,
        window=window,
        lanes=lanes,
        slab_bytes=slab_bytes,
        threads=threads,
        snapshots=snapshots,
        join=router,
        bind="127.0.0.1:0",
        metrics_bind=metrics_bind,
        worker_id=name,
    )
    return Program(name, Stage.WORKER, command)


def http_program(
    bind: HostPort, router: HostPort, *, tokenizer: str | None, chat_template: str | None, insecure: bool
) -> Program:
    """The HTTP shim.

    Args:
        tokenizer: MODEL=DIR_OR_HUB_ID, by the name that the model is served under; None: as its variables say.
        chat_template: likewise MODEL=FILE.
    """
    command = _kakeya("http", router=router, bind=bind, tokenizer=tokenizer, chat_template=chat_template)
    return Program(HTTP, Stage.HTTP, (*command, *(["--insecure"] if insecure else [])))


def prometheus_program(server: str, address: HostPort, directory: Path) -> Program:
    """Prometheus, with its configuration and what it has seen in a directory: a week of it, and a gigabyte at most."""
    flags = {
        "config.file": directory / f"{PROMETHEUS}.yaml",
        "storage.tsdb.path": directory / "prometheus-data",
        "web.listen-address": address,
        "enable-feature": "exemplar-storage",  # trace ids beside values
    }
    command = (server, *(f"--{name}={value}" for name, value in (flags | _KEPT).items()))
    return Program(PROMETHEUS, Stage.PROMETHEUS, command)


def collector_program(collector: str, directory: Path) -> Program:
    """An OpenTelemetry collector, with its configuration in a directory."""
    command = (collector, f"--config={directory / f'{COLLECTOR}.yaml'}")
    return Program(COLLECTOR, Stage.COLLECTOR, command)


def _kakeya(subcommand: str, **flags: object) -> tuple[str, ...]:
    # In one word each, since a value may begin with a dash.
    given = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None]
    return child_python.module("kakeya", subcommand, *given)
