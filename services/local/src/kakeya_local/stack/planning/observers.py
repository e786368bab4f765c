"""What watches a stack with `--observe`: Prometheus and an OpenTelemetry collector, where they are installed."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from kakeya_local.errors import StackError
from kakeya_local.stack.planning.http_entrance import HttpEntrance
from kakeya_local.stack.planning.http_plan import HttpPlan
from kakeya_local.stack.planning.ports import Ports, reachable
from kakeya_local.stack.program import COLLECTOR, HTTP, PROMETHEUS, Program, collector_program, prometheus_program
from kakeya_shared.settings.addresses import HostPort

_PROGRAMS = {PROMETHEUS: ("prometheus",), COLLECTOR: ("otelcol", "otelcol-contrib")}
_CURES = {
    PROMETHEUS: "apt install prometheus, brew install prometheus, or https://prometheus.io/download",
    COLLECTOR: "https://opentelemetry.io/docs/collector/install has packages and binaries",
}
_HTTP_JOB = "kakeya-http"
_SCRAPE_INTERVAL = "5s"
"""Short, as a person looks on; a scrape costs each process some milliseconds."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@dataclass(frozen=True)
class Observers:
    """Those that will run.

    Attributes:
        commands: their programs, by name of the process.
        addresses: where each listens, on loopback: Prometheus's pages and API; OTLP over gRPC at the collector.
        jobs: what Prometheus scrapes: HOST:PORT by the name of a process, by job.
        tls: how Prometheus speaks TLS to the HTTP shim; None: that serves none.
        notes: lines on what is left out, and how to get it.
    """

    commands: Mapping[str, str]
    addresses: Mapping[str, HostPort]
    jobs: Mapping[str, Mapping[str, str]]
    tls: Mapping[str, Any] | None
    notes: tuple[str, ...]

    @classmethod
    def make(
        cls,
        metrics: Mapping[str, str],
        router: str,
        http: HttpPlan | None,
        environment: Mapping[str, str],
        ports: Ports,
    ) -> Self:
        """Looks for the programs, and takes a free port for each.

        Args:
            metrics: where processes show their metrics, by name.
            router: which of them is the router; the others are workers.
            environment: where it names a collector of OTLP already, none is started.
        """
        found = {process: _program(process) for process in _PROGRAMS}
        notes = [
            f"--observe: {' or '.join(_PROGRAMS[process])} is not installed, and is left out; {_CURES[process]}"
            for process, path in found.items()
            if path is None
        ]
        if found[COLLECTOR] and (named := next((name for name in _ENDPOINTS if environment.get(name)), None)):
            found[COLLECTOR] = None
            notes.append(f"--observe: {named} names a collector already, and no other is started")
        commands = {process: path for process, path in found.items() if path}
        shown = {name: str(reachable(HostPort.parse(place))) for name, place in metrics.items()}
        jobs = {
            "kakeya-router": {name: place for name, place in shown.items() if name == router},
            "kakeya-worker": {name: place for name, place in shown.items() if name != router},
            _HTTP_JOB: {HTTP: str(http.entrance.address)} if http else {},
        }
        return cls(
            commands,
            {process: ports.claim(HostPort("127.0.0.1", 0)) for process in commands},
            {job: places for job, places in jobs.items() if places},
            _tls(environment) if http and http.entrance.tls else None,
            tuple(notes),
        )

    @property
    def environment(self) -> dict[str, str]:
        """Of the services: where they send their spans. Their metrics Prometheus fetches."""
        if COLLECTOR not in self.commands:
            return {}
        return {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{self.addresses[COLLECTOR]}",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
            "OTEL_TRACES_EXPORTER": "otlp",
        }

    def unready(self) -> str:
        """Why Prometheus is not ready, or "" where it is, or is left out. Who sends spans waits for its collector."""
        place = self.addresses.get(PROMETHEUS)
        return HttpEntrance(place).unready("/-/ready") if place else ""

    def programs(self, directory: Path) -> list[Program]:
        """The processes to run, with their files in a directory, which `write` fills."""
        return [
            prometheus_program(path, self.addresses[process], directory)
            if process == PROMETHEUS
            else collector_program(path, directory)
            for process, path in self.commands.items()
        ]

    def write(self, directory: Path) -> None:
        """Their configuration, and the alerts of this version. Raises StackError."""
        try:
            directory.mkdir(exist_ok=True)
            (directory / "alerts.yaml").write_text(files("kakeya_local").joinpath("alerts.yaml").read_text())
            for process in self.commands:
                config = self._prometheus() if process == PROMETHEUS else self._collector()
                (directory / f"{process}.yaml").write_text(json.dumps(config, indent=2))  # which is YAML, too
        except OSError as error:
            raise StackError(f"cannot write the configuration of --observe to {directory}: {error.strerror}") from error

    def _prometheus(self) -> dict[str, Any]:
        return {
            "global": {"scrape_interval": _SCRAPE_INTERVAL, "evaluation_interval": _SCRAPE_INTERVAL},
            "rule_files": ["alerts.yaml"],
            "scrape_configs": [self._job(job, places) for job, places in self.jobs.items()],
        }

    def _job(self, job: str, places: Mapping[str, str]) -> dict[str, Any]:
        """Processes are told apart by their names in the table; their ports are others after each start."""
        targets = [{"targets": [place], "labels": {"instance": name}} for name, place in places.items()]
        found = {"job_name": job, "static_configs": targets}
        return found if self.tls is None or job != _HTTP_JOB else found | {"scheme": "https", "tls_config": self.tls}

    def _collector(self) -> dict[str, Any]:
        """Spans as text in its log, which is rotated: what any distribution of the collector can do."""
        grpc = {"endpoint": str(self.addresses[COLLECTOR])}
        return {
            "receivers": {"otlp": {"protocols": {"grpc": grpc}}},
            "processors": {"batch": {}},
            "exporters": {"debug": {"verbosity": "detailed"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["debug"]}},
            },
        }


def _tls(environment: Mapping[str, str]) -> dict[str, Any]:
    """As `http_entrance` speaks it: the certificate is for names that clients know, perhaps not for this address."""
    shown = {"cert_file": environment.get("KAKEYA_TLS_CERT"), "key_file": environment.get("KAKEYA_TLS_KEY")}
    return {"insecure_skip_verify": True} | (shown if shown["cert_file"] else {})


def _program(process: str) -> str | None:
    return next((path for name in _PROGRAMS[process] if (path := shutil.which(name))), None)
