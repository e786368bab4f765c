"""Settings of the worker: `kakeya worker --help`, variables KAKEYA_WORKER_*."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, SecretStr, model_validator

from kakeya_shared.gguf import model_names
from kakeya_shared.process.service_process import StartError
from kakeya_shared.settings.addresses import Address, HostPort, is_loopback, parse_list
from kakeya_shared.settings.service import (
    LONGEST_APPEND_TOKENS,
    ServiceSettings,
    append_bytes,
    setting,
)
from kakeya_shared.settings.typed_flags import MayBePath, is_here, is_no_url
from kakeya_shared.settings.window import MAX, Window
from kakeya_worker.step_settings import StepSettings

_Quantized = Literal["2bit", "3bit", "4bit", "5bit", "6bit", "8bit", "mxfp4", "mxfp8", "nvfp4"]


def _addresses(text: str) -> str:
    return ",".join(parse_list(text))


def _pool(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", text):
        raise ValueError(f"{text!r} is not a pool name: a-z, 0-9 and '-', at most 63 characters")
    return text


class WorkerSettings(StepSettings):
    """Serves one model from this host: holds its weights and a slab of bounded KV, and joins a router."""

    model_config = ServiceSettings.configured(command="worker")

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the model": "model backend weights kv_dtype kernel cache_dir served_model_name",
        "lanes": "retention sink window lanes slab_bytes",
        "snapshots": "snapshots snapshot_key_file snapshot_sweep_seconds",
        "routers": "bind advertise join reverse token token_file router_ca worker_id pool",
        "the process": "shutdown_grace_seconds",
    }
    EXAMPLES: ClassVar[Sequence[str]] = (
        "kakeya worker --model kakeya-nano --join 127.0.0.1:50051",
        "kakeya worker --model ~/models/Qwen3-0.6B --window 2048 --snapshots s3://bucket/kakeya --join "
        "router.example.org:50051 --token-file join.token",
        "kakeya worker --model ~/models/Qwen3-0.6B --window max --slab-bytes 6000000000",
        "kakeya worker --model mlx-community/Qwen3-0.6B-4bit --backend mlx",
        "kakeya worker --model ~/models/Qwen3-8B --speculation draft-model --draft-model ~/models/Qwen3-0.6B",
        "kakeya worker install-service --model kakeya-nano --join 127.0.0.1:50051    # started at each boot (--help)",
        "kakeya worker --model kakeya-nano --join router.example.org:50051 --reverse --router-ca ca.pem --token-file "
        "join.token",
    )

    model: Annotated[str, MayBePath(is_here)] = setting(
        help="the model: a directory with config.json and safetensors, an installed model (kakeya-nano), a hub id, "
        "FILE.gguf (of several files any), or ollama:NAME[:TAG] of Ollama's store on this host",
        metavar="MODEL",
    )
    backend: str = setting("torch", "verifier backend plugin", reason="the one that runs on every CPU", metavar="NAME")
    weights: Literal["auto", "gguf", "float32", "bfloat16", "int8", _Quantized] = setting(
        "auto",
        "mode of the weights. gguf, a GGUF file's blocks as they are, and int8 are exact, and torch's alone; fewer "
        "bits come from such a file. 2bit and more are for what mlx-lm quantized so, on MLX",
        reason="exact where the CPU multiplies integers fast: gguf for a GGUF file with blocks, else int8. Otherwise, "
        "and on MLX, what the checkpoint has",
    )
    kv_dtype: Literal["auto", "float32", "bfloat16", "int8"] = setting(
        "auto",
        "type of K and V. int8, with a scale for each token and head, is for exact modes: nearly twice the sessions",
        reason="that of the weights; bfloat16 in exact modes, for half the memory and no loss that can be told",
    )
    kernel: Literal["auto", "avx512vnni", "avx2", "portable", "off"] = setting(
        "auto",
        "what computes in exact modes: a variant of the C++ kernel, or off for torch's operators alone",
        reason="the fastest variant that this CPU runs; all give the same bits",
    )
    cache_dir: Path | None = setting(
        None,
        "where the weights of exact modes are kept between runs, as the kernel reads them",
        unit="directory",
        reason="$XDG_CACHE_HOME/kakeya, since converting takes longer than loading",
    )
    snapshots: Annotated[str, MayBePath(is_no_url)] = setting(
        "",
        "where snapshots of sessions are kept: a directory, or a URL for fsspec (s3://BUCKET/FOLDER), the same for all "
        "workers of a pool",
        unit="directory or URL",
        reason="none, a session lives as long as its worker",
        metavar="DIR|URL",
    )
    snapshot_key_file: Path | None = setting(
        None,
        "keys with which snapshots are encrypted, one a line as `openssl rand -hex 32` makes them, the same for all "
        "workers of a store: the first encrypts, all of them decrypt",
        unit="file",
        reason="none, and who reads the store reads what was said",
    )
    snapshot_sweep_seconds: float = setting(
        300.0,
        "how often files are looked for in the snapshot store that no session needs, and how old they must be",
        unit="seconds",
        reason="they are rare: a process was killed between two steps",
        gt=0,
    )
    retention: str = setting(
        "sink-window",
        "retention policy plugin, one for all workers of a pool",
        reason="memory is bounded, a session has no end",
        metavar="NAME",
    )
    sink: int = setting(4, "sink slots of a lane", unit="tokens", reason="StreamingLLM's four suffice", ge=0)
    window: Window = setting(
        None,
        "window of a lane. `max` is the largest of which 2 lanes, or --lanes of them, fit the slab, and the model's "
        "positions: for agents, whose system messages and tools alone take 8,000 tokens and more",
        unit="tokens",
        reason="the smaller of 4096 and the model's positions, lowered until 4 lanes fit the slab",
        metavar="N|max",
    )
    lanes: int | None = setting(
        None,
        "number of lanes, instead of --slab-bytes; with `--window max` beside it",
        unit="lanes",
        reason="as many as fit the slab",
        ge=1,
    )
    slab_bytes: int | None = setting(
        None, "memory for all KV", unit="bytes", reason="1 GiB, which any host that runs the model can spare", ge=1
    )
    bind: Address = setting(
        "127.0.0.1:0", "where to listen", unit="HOST:PORT", reason="loopback and any free port; routers learn it"
    )
    advertise: Address | None = setting(
        None,
        "where routers reach this worker",
        unit="HOST:PORT",
        reason="what --bind took, with the host name for 0.0.0.0",
    )
    join: Annotated[str, AfterValidator(_addresses)] = setting(
        "", "routers to join, the first that answers", unit="HOST:PORT,...", reason="none, serve alone"
    )
    reverse: bool = setting(
        False,
        "this worker listens nowhere: it keeps tunnels to two routers, and they reach it through these. For a host "
        "behind NAT, which dials out and cannot be dialled. Beyond loopback it takes a token and --router-ca",
        reason="routers dial the worker, which is a hop less",
    )
    token: SecretStr | None = setting(
        None,
        "join token (`kakeya tokens create`), where the routers ask for one; put it into the variable or a file, since "
        "flags are seen by everybody on the host",
        reason="none",
        metavar="TOKEN",
    )
    token_file: Path | None = setting(
        None, "file with the join token; read again at each call", unit="file", reason="none"
    )
    router_ca: Path | None = setting(
        None,
        "certificate authorities of the routers, in PEM: calls to routers use TLS and present --tls-cert",
        unit="file",
        reason="none, plaintext to routers",
    )
    worker_id: str | None = setting(
        None,
        "stable name of this worker",
        reason="host name and port, or host name and pool with --reverse",
        min_length=1,
        max_length=128,
        metavar="NAME",
    )
    served_model_name: str | None = setting(
        None,
        "the model's name for clients",
        reason="the last part of --model, without .gguf",
        min_length=1,
        max_length=256,
        metavar="NAME",
    )
    pool: Annotated[str, AfterValidator(_pool)] | None = setting(
        None, "pool of workers to serve in", reason="made of the model's name", metavar="NAME"
    )
    shutdown_grace_seconds: float = setting(
        5.0,
        "how long the end may take on SIGTERM: half is for running calls, all of it for routers to take sessions away",
        unit="seconds",
        reason="within Docker's 10",
        ge=0,
    )

    @model_validator(mode="after")
    def _one_size(self) -> "WorkerSettings":
        if self.lanes is not None and self.slab_bytes is not None and self.window != MAX:
            raise ValueError("give --lanes or --slab-bytes, not both, unless the window is to follow: --window max")
        return self

    @model_validator(mode="after")
    def _holds_the_longest_append(self) -> "WorkerSettings":
        needed = append_bytes(LONGEST_APPEND_TOKENS)
        if self.max_message_bytes < needed:
            raise ValueError(f"--max-message-bytes must be at least {needed}: routers may allow appends of that size")
        return self

    @model_validator(mode="after")
    def _reachable(self) -> "WorkerSettings":
        if self.advertise is not None and HostPort.parse(self.advertise).port == 0:
            raise ValueError("--advertise needs the port that routers reach")
        return self

    @model_validator(mode="after")
    def _one_token(self) -> "WorkerSettings":
        if self.token is not None and self.token_file is not None:
            raise ValueError("give --token or --token-file, not both")
        return self

    @model_validator(mode="after")
    def _dials_out(self) -> "WorkerSettings":
        if not self.reverse:
            return self
        if not self.join:
            raise ValueError("--reverse needs --join: without routers nobody comes to this worker")
        if given := [f"--{name}" for name in ("bind", "advertise") if name in self.model_fields_set]:
            raise ValueError(f"--reverse listens nowhere: leave out {' and '.join(given)}")
        is_near = all(is_loopback(HostPort.parse(address).host) for address in parse_list(self.join))
        if not is_near and (self.router_ca is None or (self.token is None and self.token_file is None)):
            raise ValueError("--reverse beyond loopback needs --router-ca, and --token or --token-file")
        return self

    @model_validator(mode="after")
    def _let_nobody_in_unnoticed(self) -> "WorkerSettings":
        self.refuse_open_bind("routers need no certificate (--tls-client-ca)" if self.tls_client_ca is None else "")
        return self

    @property
    def cache_directory(self) -> Path:
        """Raises StartError where there is no home directory."""
        return cache_directory(self.cache_dir)

    @property
    def model_name(self) -> str:
        """What clients call the model."""
        return self.served_model_name or model_names.served_name(self.model)

    @property
    def pool_name(self) -> str:
        """The pool, by default the model's name in a pool's alphabet."""
        return self.pool or re.sub(r"[^a-z0-9]+", "-", self.model_name.lower()).strip("-")[:63] or "model"


def cache_directory(given: Path | None) -> Path:
    """What a worker keeps of models; without a place that is given it follows the XDG base directory specification.

    Raises:
        StartError: there is no home directory.
    """
    if given:
        return Path(os.path.expanduser(given))
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if cache_home.startswith("~"):
        raise StartError("there is no home directory: set HOME or XDG_CACHE_HOME, or pass --cache-dir")
    return Path(cache_home) / "kakeya"
