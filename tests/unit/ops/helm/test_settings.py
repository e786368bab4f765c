"""What pods are told, services take: by their own settings, as documented; and no secret stands in a document."""

import json
import re
from typing import Any

import pytest
import yaml

from kakeya_http_shim.settings import HttpSettings
from kakeya_router.settings import RouterSettings
from kakeya_shared.settings.service import ServiceSettings
from kakeya_worker.settings import WorkerSettings
from tests.unit.ops.helm.chart import (
    CHART,
    HERE,
    ROOT,
    VALUE_SETS,
    container,
    of_kind,
    ours,
    plain_variables,
    rendered,
    secret_variables,
    workloads,
)

SETTINGS: dict[str, type[ServiceSettings]] = {"router": RouterSettings, "worker": WorkerSettings, "http": HttpSettings}
DOCUMENTED = set(re.findall(r"`(KAKEYA_[A-Z_]+)`", (ROOT / "docs" / "configuration.md").read_text()))
OTHERS = {
    "HF_HOME": "services/worker/README.md",
    "HF_TOKEN": "services/worker/README.md",
    "XDG_CACHE_HOME": "services/worker/README.md",
    "OTEL_TRACES_EXPORTER": "docs/traces.md",
}
OF_THE_POD = {"POD_IP": "10.1.2.3", "POD_NAME": "kakeya-worker-0"}
IN_SECRETS = {"url": "redis://redis.example.org:6379/0"}
SECRETS = {"KAKEYA_ROUTER_ADMIN_KEY", "KAKEYA_ROUTER_JOIN_TOKEN", "KAKEYA_WORKER_TOKEN", "HF_TOKEN"}
every_set = pytest.mark.parametrize("value_set", VALUE_SETS)


def environment(of: dict[str, Any]) -> dict[str, str]:
    """As the kubelet makes it, secrets included."""
    found = {name: IN_SECRETS.get(key, "x" * 32) for name, (_, key) in secret_variables(of).items()}
    for name, value in plain_variables(of).items():
        found[name] = re.sub(r"\$\((\w+)\)", lambda match: OF_THE_POD[match[1]], value)
    return found


def told(workload: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    inner = container(workload)
    with monkeypatch.context() as patch:
        for name, value in environment(inner).items():
            patch.setenv(name, value)
        return SETTINGS[inner["name"]].parse([])


@every_set
def test_services_take_what_they_are_told(value_set: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, workload in ours(value_set):
        found = told(workload, monkeypatch)
        ports = {port["name"]: port["containerPort"] for port in container(workload)["ports"]}
        assert found.bind == f"0.0.0.0:{ports['http' if name == 'http' else 'grpc']}"
        if name != "http":
            assert found.metrics_bind == f"0.0.0.0:{ports['metrics']}"


@every_set
def test_every_variable_is_documented(value_set: str) -> None:
    for _, workload in ours(value_set):
        names = {each["name"] for each in container(workload)["env"]} - OF_THE_POD.keys()
        assert {name for name in names if name.startswith("KAKEYA_")} <= DOCUMENTED
        for name in names - DOCUMENTED:
            assert name in (ROOT / OTHERS[name]).read_text()


@every_set
def test_a_variable_is_set_once(value_set: str) -> None:
    for _, workload in ours(value_set):
        names = [each["name"] for each in container(workload)["env"]]
        assert len(names) == len(set(names))


@every_set
def test_secrets_are_in_secrets(value_set: str) -> None:
    for document in rendered(value_set):
        assert document["kind"] != "ConfigMap"
        if document["kind"] != "Secret":
            assert "correct-horse" not in json.dumps(document)
    for _, workload in ours(value_set):
        assert not SECRETS & plain_variables(container(workload)).keys()


def test_redis_is_named_by_a_secret_unless_it_is_the_charts_own() -> None:
    variable = "KAKEYA_ROUTER_REDIS"
    assert plain_variables(container(workloads("defaults")["router"]))[variable] == "redis://kakeya-redis:6379/0"
    assert secret_variables(container(workloads("redis-secret")["router"]))[variable] == ("my-redis", "url")
    name, key = secret_variables(container(workloads("redis-url")["router"]))[variable]
    secret = of_kind("redis-url", "Secret")[name.removeprefix("kakeya-")]
    assert secret["stringData"][key] == "rediss://kakeya:correct-horse@redis.example.org:6380/1"


def test_keys_are_asked_for_unless_that_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, open_to_all = (told(workloads(name)["router"], monkeypatch) for name in ("defaults", "open"))
    assert (closed.auth, closed.insecure) == ("keys", False)
    assert (open_to_all.auth, open_to_all.insecure) == ("none", True)
    keys = secret_variables(container(workloads("defaults")["router"]))
    assert keys["KAKEYA_ROUTER_ADMIN_KEY"] == ("kakeya-keys", "admin-key")
    assert keys["KAKEYA_ROUTER_JOIN_TOKEN"] == ("kakeya-keys", "join-token")
    assert (
        secret_variables(container(workloads("defaults")["worker"]))["KAKEYA_WORKER_TOKEN"]
        == keys["KAKEYA_ROUTER_JOIN_TOKEN"]
    )
    assert not secret_variables(container(workloads("open")["worker"]))


def test_addresses_lead_where_services_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for value_set in VALUE_SETS:
        services = of_kind(value_set, "Service")
        assert services["router"]["spec"]["ports"][0]["port"] == 50051
        for part in {"worker", "http"} & workloads(value_set).keys():
            found = told(workloads(value_set)[part], monkeypatch)
            assert (found.join if part == "worker" else found.router) == "kakeya-router:50051"


def test_workers_with_certificates_are_dialled_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(workloads("defaults")["worker"], monkeypatch).advertise == "10.1.2.3:50052"
    worker = told(workloads("tls-issuer")["worker"], monkeypatch)
    assert worker.advertise == "kakeya-worker-0.kakeya-worker.models.svc.cluster.example:50052"
    assert worker.insecure is False
    assert worker.tls_client_ca is not None
    names = of_kind("tls-issuer", "Certificate")["worker"]["spec"]["dnsNames"]
    assert "*.kakeya-worker.models.svc.cluster.example" in names
    assert workloads("tls-issuer")["worker"]["spec"]["serviceName"] == "kakeya-worker"


def test_snapshots_go_where_values_say(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, far = (told(workloads(f"snapshots-{name}")["worker"], monkeypatch) for name in ("claim", "url"))
    assert (claimed.snapshots, str(claimed.snapshot_key_file)) == ("/var/lib/kakeya/snapshots", "/snapshot-keys/keys")
    assert far.snapshots == "s3://bucket/kakeya"
    worker = container(workloads("snapshots-url")["worker"])
    assert worker["envFrom"] == [{"secretRef": {"name": "bucket-credentials"}}]
    assert not told(workloads("defaults")["worker"], monkeypatch).snapshots


def test_workers_outside_are_told_an_address_with_one_router_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        router = workloads("tunnels")[f"tunnel-{name}"]
        assert router["spec"]["replicas"] == 1
        found = told(router, monkeypatch)
        assert (found.tunnel_bind, found.tunnel_advertise) == ("0.0.0.0:50053", f"{name}.example.org:50053")
        service = of_kind("tunnels", "Service")[f"tunnel-{name}"]["spec"]
        assert service["selector"].items() <= router["spec"]["template"]["metadata"]["labels"].items()
        assert [port["port"] for port in service["ports"]] == [50051, 50053]
    other = told(workloads("tunnels")["router"], monkeypatch)
    assert (other.tunnel_bind, str(other.tunnel_ca)) == ("none", "/tls/own/ca.crt")
    names = of_kind("tunnels", "Certificate")["router"]["spec"]["dnsNames"]
    assert {"localhost", "kakeya-router", "a.example.org", "b.example.org"} <= set(names)


def test_numbers_are_written_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(workloads("large-model")["worker"], monkeypatch)
    assert (found.slab_bytes, found.window, found.step_milliseconds) == (8_589_934_592, 2048, 12.5)


def test_the_http_shim_finds_the_tokenizer_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    of_the_hub, a_file = (told(workloads(name)["http"], monkeypatch) for name in ("large-model", "local-model"))
    assert of_the_hub.tokenizers == {"Qwen3-0.6B": "Qwen/Qwen3-0.6B"}
    assert a_file.tokenizers == {"small": "/models/SmolLM2-135M-Instruct.Q4_1.gguf"}
    assert told(workloads("local-model")["worker"], monkeypatch).served_model_name == "small"
    assert not told(workloads("defaults")["http"], monkeypatch).tokenizers


def test_connections_come_to_new_routers(monkeypatch: pytest.MonkeyPatch) -> None:
    for value_set in ("defaults", "local-model"):
        assert told(workloads(value_set)["router"], monkeypatch).max_connection_age_seconds == 300


def test_caches_are_where_the_images_have_them() -> None:
    for part, folder in {"worker": "worker", "http": "http_shim"}.items():
        variables = plain_variables(container(workloads("defaults")[part]))
        image = (ROOT / "services" / folder / "Dockerfile").read_text()
        assert f"HF_HOME={variables['HF_HOME']}" in image
        assert variables["XDG_CACHE_HOME"] == "/var/cache"


def test_values_name_every_variable_that_the_chart_does_not_set_itself() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    for part in SETTINGS:
        named = set(schema[part]["properties"]["variables"]["propertyNames"]["anyOf"][0]["enum"])
        set_here = {
            each["name"] for name in VALUE_SETS for _, workload in ours(name) for each in container(workload)["env"]
        }
        given = {
            variable
            for file in (CHART / "values.yaml", *(HERE / "values").glob("*.yaml"))
            for variable in yaml.safe_load(file.read_text()).get(part, {}).get("variables", {})
        }
        documented = {name for name in DOCUMENTED if name.startswith(f"KAKEYA_{part.upper()}_")}
        assert named <= documented
        assert not named & (set_here - given - {"KAKEYA_HTTP_TOKENIZER"})
        assert documented - named - set_here == NOT_OFFERED[part]


NOT_OFFERED = {
    # Probes show no certificate of a client's. Redis is on no router's host.
    "router": {"KAKEYA_ROUTER_TLS_CLIENT_CA", "KAKEYA_ROUTER_REDIS_DIRECTORY"},
    # Workers of the chart are dialled. The token is a variable; the cache is a volume.
    "worker": {"KAKEYA_WORKER_REVERSE", "KAKEYA_WORKER_TOKEN_FILE", "KAKEYA_WORKER_CACHE_DIR"},
    "http": {"KAKEYA_HTTP_TLS_CLIENT_CA", "KAKEYA_HTTP_ROUTER_CERT", "KAKEYA_HTTP_ROUTER_KEY"},
}
"""Variables that a chart's user cannot set."""
