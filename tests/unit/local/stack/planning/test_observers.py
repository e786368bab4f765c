"""What watches a stack: found, told whom to watch, and left out with a word on how to get it."""

import json
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya_local.errors import StackError
from kakeya_local.stack.planning.http_entrance import HttpEntrance
from kakeya_local.stack.planning.http_plan import HttpPlan
from kakeya_local.stack.planning.observers import Observers
from kakeya_local.stack.planning.ports import Ports
from kakeya_local.stack.program import Stage
from kakeya_shared.settings.addresses import HostPort
from tests.unit.local.scripted_http import scripted_http

ROOT = Path(__file__).resolve().parents[5]
METRICS = {"router": "0.0.0.0:9464", "worker-1": "127.0.0.1:9465", "worker-2": "127.0.0.1:9466"}
SHIM = HostPort("127.0.0.1", 8000)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Puts programs of these names where alone they are looked for; that folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(*names: str) -> str:
        for name in names:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        return str(folder)

    return put


def made(
    environment: dict[str, str] | None = None, *, metrics: dict[str, str] = METRICS, tls: bool = False
) -> Observers:
    entrance = HttpEntrance(SHIM, ssl.create_default_context() if tls else None)
    with Ports() as ports:
        return Observers.make(metrics, "router", HttpPlan(SHIM, entrance, "nano", None), environment or {}, ports)


def written(observers: Observers, directory: Path, process: str) -> Any:
    observers.write(directory)
    return json.loads((directory / f"{process}.yaml").read_text())


def test_both_are_started_where_they_are_installed(install: Callable[..., str], tmp_path: Path) -> None:
    folder = install("prometheus", "otelcol")
    observers = made()
    prometheus, collector = observers.programs(tmp_path)
    assert observers.notes == ()
    assert prometheus.command[0] == f"{folder}/prometheus"
    assert f"--web.listen-address={observers.addresses['prometheus']}" in prometheus.command
    assert collector.command == (f"{folder}/otelcol", f"--config={tmp_path}/collector.yaml")
    assert (collector.stage, prometheus.stage) == (min(Stage), max(Stage)), "the last spans of all others are heard"
    assert len({address.port for address in observers.addresses.values()} - {0}) == 2


def test_the_larger_collector_does_as_well(install: Callable[..., str], tmp_path: Path) -> None:
    folder = install("otelcol-contrib")
    assert made().programs(tmp_path)[0].command[0] == f"{folder}/otelcol-contrib"


def test_what_is_missing_is_named_with_its_cure(install: Callable[..., str], tmp_path: Path) -> None:
    observers = made()
    assert observers.programs(tmp_path) == []
    assert observers.environment == {}
    assert observers.unready() == ""
    assert [note.split(", and is left out; ")[0] for note in observers.notes] == [
        "--observe: prometheus is not installed",
        "--observe: otelcol or otelcol-contrib is not installed",
    ]
    assert "apt install prometheus" in observers.notes[0]
    assert "https://opentelemetry.io/" in observers.notes[1]


def test_prometheus_scrapes_every_process_by_its_name(install: Callable[..., str], tmp_path: Path) -> None:
    install("prometheus")
    config = written(made(), tmp_path / "observe", "prometheus")
    assert config["rule_files"] == ["alerts.yaml"]
    seen = {
        job["job_name"]: {each["labels"]["instance"]: each["targets"] for each in job["static_configs"]}
        for job in config["scrape_configs"]
    }
    assert seen == {
        "kakeya-router": {"router": ["127.0.0.1:9464"]},
        "kakeya-worker": {"worker-1": ["127.0.0.1:9465"], "worker-2": ["127.0.0.1:9466"]},
        "kakeya-http": {"http": ["127.0.0.1:8000"]},
    }


def test_who_shows_nothing_is_not_scraped(install: Callable[..., str], tmp_path: Path) -> None:
    install("prometheus")
    with Ports() as ports:
        assert Observers.make({}, "router", None, {}, ports).jobs == {}
    jobs = made(metrics={"worker-1": "127.0.0.1:9465"}).jobs
    assert jobs.keys() == {"kakeya-worker", "kakeya-http"}


def test_https_is_spoken_to_a_shim_that_serves_it(install: Callable[..., str], tmp_path: Path) -> None:
    install("prometheus")
    *others, http = written(made(tls=True), tmp_path, "prometheus")["scrape_configs"]
    assert (http["scheme"], http["tls_config"]) == ("https", {"insecure_skip_verify": True})
    assert not [job for job in others if "scheme" in job]
    files = {"KAKEYA_TLS_CERT": "/tls/me.pem", "KAKEYA_TLS_KEY": "/tls/me.key"}
    http = written(made(files, tls=True), tmp_path, "prometheus")["scrape_configs"][-1]
    assert http["tls_config"] == {
        "insecure_skip_verify": True,
        "cert_file": "/tls/me.pem",
        "key_file": "/tls/me.key",
    }


def test_the_collector_hears_the_services(install: Callable[..., str], tmp_path: Path) -> None:
    install("otelcol")
    observers = made()
    config = written(observers, tmp_path, "collector")
    endpoint = config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert observers.environment == {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{endpoint}",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
        "OTEL_TRACES_EXPORTER": "otlp",
    }
    (pipeline,) = config["service"]["pipelines"].values()
    assert all(set(pipeline[kind]) <= config[kind].keys() for kind in ("receivers", "processors", "exporters"))


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_a_collector_that_is_named_already_has_the_spans(install: Callable[..., str], name: str) -> None:
    install("prometheus", "otelcol")
    observers = made({name: "http://collector:4317"})
    assert observers.commands.keys() == {"prometheus"}
    assert observers.environment == {}
    assert observers.notes == (f"--observe: {name} names a collector already, and no other is started",)


def test_it_is_ready_when_prometheus_is(install: Callable[..., str]) -> None:
    with scripted_http() as server:
        server.answers = [(503, b"Service Unavailable"), (200, b"")]
        observers = Observers({"prometheus": "p"}, {"prometheus": server.address}, {}, None, ())
        assert observers.unready() == "it answers 503"
        assert observers.unready() == ""
        assert server.requests[0] == ("GET /-/ready", None)


def test_a_folder_that_cannot_be_written_is_told(install: Callable[..., str], tmp_path: Path) -> None:
    install("prometheus")
    (tmp_path / "file").touch()
    with pytest.raises(StackError, match=r"^cannot write the configuration of --observe to .*/file: "):
        made().write(tmp_path / "file")


def test_the_alerts_are_those_of_ops(install: Callable[..., str], tmp_path: Path) -> None:
    install("prometheus")
    made().write(tmp_path)
    assert (tmp_path / "alerts.yaml").read_text() == (ROOT / "ops" / "prometheus" / "alerts.yaml").read_text()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None
    made(tls=True).write(tmp_path)
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yaml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{(tmp_path / 'alerts.yaml').read_text().count('- alert: ')} rules found" in checked.stdout
