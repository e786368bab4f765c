"""What the profile `observability` of Compose is configured with, as far as that shows without its images.

Prometheus's own promtool takes its configuration, and the test of Compose runs it. The collector's is held against the
schema in its sources. Of Grafana's provisioning and Jaeger, which nothing here can run, what must fit together is
compared.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from kakeya_local.stack.planning.observers import Observers
from kakeya_shared.settings.addresses import HostPort

ROOT = Path(__file__).resolve().parents[3]
OPS = ROOT / "ops"
SCHEMA = json.loads((Path(__file__).parent / "collector.schema.json").read_text())


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def services() -> dict[str, Any]:
    found: dict[str, Any] = read(ROOT / "compose" / "compose.yaml")["services"]
    return found


def mounts(service: str) -> dict[str, Path]:
    """Files and folders of the repository, by where a container has them."""
    parts = [volume.split(":") for volume in services()[service]["volumes"] if volume.startswith("../")]
    assert all(part[2] == "ro" for part in parts)
    return {part[1]: (ROOT / "compose" / part[0]).resolve() for part in parts}


def of_up(directory: Path) -> Any:
    """What `kakeya up --observe` gives its collector."""
    Observers({"collector": "otelcol"}, {"collector": HostPort("127.0.0.1", 4317)}, {}, None, ()).write(directory)
    return read(directory / "collector.yaml")


@pytest.fixture(params=["compose", "up"])
def collector(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return read(OPS / "collector" / "collector.yaml") if request.param == "compose" else of_up(tmp_path)


def test_the_collectors_schema_takes_its_configuration(collector: Any) -> None:
    jsonschema_rs.validate(SCHEMA, collector)
    for pipeline in collector["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= collector[kind].keys()


@pytest.mark.parametrize(
    ("place", "mistake"),
    [
        (("receivers", "otlp", "protocols", "grpc"), {"endpiont": "0.0.0.0:4317"}),
        (("receivers", "otlp", "protocols"), {"thrift": {}}),
        (("processors", "batch"), {"timeout": 5}),
        (("exporters",), {"jaeger": {"endpoint": "jaeger:14250"}}),
        (("service", "telemetry", "metrics"), {"address": "0.0.0.0:8888"}),
    ],
    ids=["a_key", "a_protocol", "a_type", "an_exporter", "telemetry"],
)
def test_mistakes_are_found(place: tuple[str, ...], mistake: dict[str, Any]) -> None:
    wrong = read(OPS / "collector" / "collector.yaml")
    inner = wrong
    for key in place:
        inner = inner[key]
    inner |= mistake
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(SCHEMA, wrong)


@pytest.mark.skipif(shutil.which("otelcol") is None, reason="otelcol is not installed")
def test_the_collector_itself_takes_its_configuration(collector: Any, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(collector))
    command = ["otelcol", "validate", f"--config={tmp_path / 'config.yaml'}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_traces_go_from_the_services_to_jaeger() -> None:
    config, all_of = read(OPS / "collector" / "collector.yaml"), services()
    port = config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"].rpartition(":")[2]
    for name in ("router", "worker-1", "worker-2", "http"):
        told = all_of[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
        assert told == f"${{OTEL_EXPORTER_OTLP_ENDPOINT:-http://collector:{port}}}"
    assert config["exporters"]["otlp/jaeger"]["endpoint"] == "jaeger:4317", "where Jaeger takes OTLP"
    (flag,) = all_of["collector"]["command"]
    assert _in_repository("collector", flag.partition("=")[2]) == OPS / "collector" / "collector.yaml"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("name", ["prometheus", "prometheus-tls"])
def test_promtool_takes_prometheuss_configuration(name: str) -> None:
    command = ["promtool", "check", "config", str(OPS / "prometheus" / f"{name}.yaml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_scrapes_what_the_stack_has() -> None:
    config, all_of = read(OPS / "prometheus" / "prometheus.yaml"), services()
    scraped = {
        target for job in config["scrape_configs"] for each in job["static_configs"] for target in each["targets"]
    }
    assert scraped == {"router:9464", "worker-1:9464", "worker-2:9464", "http:8000"}
    assert "0.0.0.0:9464" in all_of["router"]["environment"]["KAKEYA_ROUTER_METRICS_BIND"]
    told = next(flag for flag in all_of["prometheus"]["entrypoint"] if flag.startswith("--config.file="))
    place = told.partition("=")[2]
    for secured, name in (("", "prometheus.yaml"), ("-tls", "prometheus-tls.yaml")):
        file = _in_repository("prometheus", place.replace("${KAKEYA_TLS:+-tls}", secured))
        assert file == OPS / "prometheus" / name


def test_where_the_stack_serves_tls_the_shim_alone_is_scraped_otherwise() -> None:
    config, secured = (read(OPS / "prometheus" / f"{name}.yaml") for name in ("prometheus", "prometheus-tls"))
    (job,) = (job for job in config["scrape_configs"] if job["job_name"] == "kakeya-http")
    job |= {"scheme": "https", "tls_config": {"ca_file": "/tls/ca.pem", "server_name": "127.0.0.1"}}
    assert secured == config


def test_grafana_is_provisioned_with_what_is_there() -> None:
    """By the form that Grafana documents: version 1, a list of sources, a list of providers of dashboards."""
    provisioning = mounts("grafana")["/etc/grafana/provisioning"]
    sources = [read(file) for file in sorted((provisioning / "datasources").glob("*.yaml"))]
    assert {source["apiVersion"] for source in sources} == {1}
    found = {source["type"]: source for each in sources for source in each["datasources"]}
    assert found.keys() == {"prometheus", "jaeger"}
    for kind, source in found.items():
        assert {"name", "uid", "type", "access", "url"} <= source.keys() <= {*_SOURCE_KEYS}
        host, _, port = source["url"].removeprefix("http://").partition(":")
        assert host == kind, "a service of the stack"
        assert services()[kind]["ports"][0].endswith(f":{port}")
    interval = read(OPS / "prometheus" / "prometheus.yaml")["global"]["scrape_interval"]
    assert found["prometheus"]["jsonData"]["timeInterval"] == interval
    (dots,) = found["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert dots == {"name": "trace_id", "datasourceUid": found["jaeger"]["uid"]}
    assert found["prometheus"]["isDefault"] is True
    (provider,) = read(provisioning / "dashboards" / "kakeya.yaml")["providers"]
    assert provider.keys() == {"name", "folder", "type", "options"}
    dashboards = _in_repository("grafana", provider["options"]["path"])
    assert len([*dashboards.glob("*.json")]) == 6
    home = services()["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert _in_repository("grafana", home).is_file()


_SOURCE_KEYS = ("name", "uid", "type", "access", "url", "isDefault", "jsonData")


def _in_repository(service: str, path: str) -> Path:
    """What a container of a service finds at a path."""
    place, source = next((place, source) for place, source in mounts(service).items() if path.startswith(place))
    found = source / path.removeprefix(place).strip("/")
    assert found.exists()
    return found


def test_what_asks_for_no_key_is_on_loopback_only() -> None:
    for service in services().values():
        if "observability" in service.get("profiles", ()):
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
