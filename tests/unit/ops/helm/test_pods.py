"""What pods may do, how they are asked for their health, and how long they may take to end."""

import re
from typing import Any

import pytest
import yaml

from kakeya_http_shim.routes.openapi.document import document
from kakeya_shared import health_command
from tests.unit.ops.helm.chart import (
    CHART,
    PARTS,
    ROOT,
    VALUE_SETS,
    container,
    of_kind,
    ours,
    pod,
    rendered,
    workloads,
)

DOCKERFILES = {"router": "router", "worker": "worker", "http": "http_shim"}
every_set = pytest.mark.parametrize("value_set", VALUE_SETS)


def dockerfile(part: str) -> str:
    return (ROOT / "services" / DOCKERFILES[part] / "Dockerfile").read_text()


def mounts(of: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By path: the mount, with what is mounted as `source`."""
    spec = pod(of)
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    claims = {claim["metadata"]["name"]: claim for claim in of["spec"].get("volumeClaimTemplates", ())}
    return {
        each["mountPath"]: {**each, "source": (volumes | claims)[each["name"]]}
        for each in container(of)["volumeMounts"]
    }


@every_set
def test_pods_have_no_rights(value_set: str) -> None:
    for workload in workloads(value_set).values():
        spec, inner = pod(workload), container(workload)["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
        assert inner == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("part", PARTS)
def test_users_are_those_of_the_images(part: str) -> None:
    found = pod(workloads("defaults")[part])["securityContext"]
    assert f"USER {found['runAsUser']}:{found['runAsGroup']}\n" in dockerfile(part)


@every_set
def test_where_processes_write_there_is_a_volume(value_set: str) -> None:
    for name, workload in ours(value_set):
        found = mounts(workload)
        assert "emptyDir" in found["/tmp"]["source"]
        for path in re.findall(r"/var/cache/kakeya|/var/lib/kakeya/snapshots", dockerfile(container(workload)["name"])):
            assert not found.get(path, {}).get("readOnly"), name
        if container(workload)["name"] != "router":
            assert "/var/cache/kakeya" in found
        read_only = {path for path, mount in found.items() if mount.get("readOnly")}
        assert read_only >= {path for path in found if path.startswith(("/tls", "/models", "/snapshot-keys"))}


def test_weights_are_kept_in_a_claim_where_that_is_asked_for() -> None:
    assert "emptyDir" in mounts(workloads("defaults")["worker"])["/var/cache/kakeya"]["source"]
    claim = mounts(workloads("large-model")["worker"])["/var/cache/kakeya"]["source"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "40Gi"
    assert claim["spec"]["storageClassName"] == "fast"
    retention = workloads("large-model")["worker"]["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert retention == {"whenDeleted": "Delete", "whenScaled": "Delete"}
    for part in ("worker", "http"):
        models = mounts(workloads("large-model")[part])["/models"]["source"]
        assert models["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}


@every_set
def test_files_of_secrets_are_for_the_pods_group_alone(value_set: str) -> None:
    for workload in workloads(value_set).values():
        for volume in pod(workload).get("volumes", ()):
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] == 0o440


def test_who_calls_routers_has_no_key_of_theirs() -> None:
    for part in ("worker", "http"):
        source = mounts(workloads("tls-secrets")[part])["/tls/router"]["source"]["secret"]
        assert source["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


@every_set
def test_ports_are_those_of_the_images(value_set: str) -> None:
    for _, workload in ours(value_set):
        inner = container(workload)
        ports = {port["name"]: port["containerPort"] for port in inner["ports"]}
        exposed = re.findall(r"^EXPOSE (\d+)$", dockerfile(inner["name"]), re.M)
        assert [str(ports["http" if inner["name"] == "http" else "grpc"])] == exposed
        assert f'CMD ["{inner["args"][0]}"]' in dockerfile(inner["name"])


@every_set
def test_services_lead_to_ports_that_there_are(value_set: str) -> None:
    for service in of_kind(value_set, "Service").values():
        selector = service["spec"]["selector"].items()
        behind = [
            {port["name"]: port["containerPort"] for port in container(workload)["ports"]}
            for workload in workloads(value_set).values()
            if selector <= workload["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert behind
        for port in service["spec"]["ports"]:
            assert all(ports[port["targetPort"]] == port["port"] for ports in behind)


@every_set
def test_router_and_worker_are_asked_by_grpc_health(value_set: str) -> None:
    for name, workload in ours(value_set):
        inner = container(workload)
        if inner["name"] == "http":
            continue
        port = next(each["containerPort"] for each in inner["ports"] if each["name"] == "grpc")
        asked = ["readinessProbe"] if inner["name"] == "router" else ["startupProbe", "readinessProbe", "livenessProbe"]
        for probe in asked:
            if any(each["name"] == f"KAKEYA_{inner['name'].upper()}_TLS_CERT" for each in inner["env"]):
                command = inner[probe]["exec"]["command"]
                assert command[:2] == ["kakeya", "health"]
                parsed = health_command._parser().parse_args(command[2:])
                assert parsed.address == f"127.0.0.1:{port}", name
                assert str(parsed.tls_ca) == "/tls/own/ca.crt"
                assert parsed.timeout_seconds < inner[probe]["timeoutSeconds"]
            else:
                assert inner[probe]["grpc"] == {"port": port}, name


@every_set
def test_the_http_shim_is_asked_at_routes_that_it_has(value_set: str) -> None:
    served = document("0", max_choices=1)["paths"]
    for name, workload in ours(value_set):
        if name != "http":
            continue
        inner = container(workload)
        has_tls = any(each["name"] == "KAKEYA_HTTP_TLS_CERT" for each in inner["env"])
        asked = {probe: inner[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe")}
        assert {probe: get["path"] for probe, get in asked.items()} == {
            "readinessProbe": "/readyz",
            "livenessProbe": "/healthz",
        }
        assert all("get" in served[get["path"]] for get in asked.values())
        assert {get["scheme"] for get in asked.values()} == {"HTTPS" if has_tls else "HTTP"}


def test_a_router_without_redis_is_not_started_again() -> None:
    for workload in (each for name, each in ours("tunnels") if container(each)["name"] == "router"):
        assert container(workload)["livenessProbe"]["tcpSocket"] == {"port": "grpc"}


@pytest.mark.parametrize(("value_set", "seconds"), [("defaults", 1800), ("large-model", 3601)])
def test_a_worker_may_take_its_time_to_load(value_set: str, seconds: int) -> None:
    probe = container(workloads(value_set)["worker"])["startupProbe"]
    allowed = probe["periodSeconds"] * probe["failureThreshold"]
    assert seconds <= allowed < seconds + probe["periodSeconds"]


@every_set
def test_the_grace_of_a_pod_is_above_that_of_its_process(value_set: str) -> None:
    for _, workload in ours(value_set):
        inner = container(workload)
        variables = {each["name"]: each.get("value") for each in inner["env"]}
        grace = float(variables[f"KAKEYA_{inner['name'].upper()}_SHUTDOWN_GRACE_SECONDS"] or 0)
        sleep = inner.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert pod(workload)["terminationGracePeriodSeconds"] == grace + sleep + 10
        assert (sleep > 0) == (inner["name"] != "worker"), "SIGTERM is what drains a worker"


def test_graces_are_what_values_say() -> None:
    found = {name: pod(each)["terminationGracePeriodSeconds"] for name, each in ours("graces")}
    assert found == {"router": 90 + 20 + 10, "worker": 300 + 10, "http": 0 + 1 + 10}


@every_set
def test_pods_spread_and_have_resources(value_set: str) -> None:
    for _, workload in ours(value_set):
        spread = {each["topologyKey"]: each for each in pod(workload)["topologySpreadConstraints"]}
        assert spread.keys() == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
        labels = workload["spec"]["template"]["metadata"]["labels"].items()
        assert all(each["labelSelector"]["matchLabels"].items() <= labels for each in spread.values())
        assert container(workload)["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container(workload)["resources"]["limits"]


def test_redis_for_a_trial_syncs_every_write() -> None:
    redis = workloads("defaults")["redis"]
    compose = yaml.safe_load((ROOT / "compose" / "compose.yaml").read_text())["services"]["redis"]
    assert container(redis)["args"] == compose["command"]
    assert container(redis)["image"] == compose["image"]
    assert redis["spec"]["replicas"] == 1
    assert "redis" not in workloads("redis-url")


def test_chart_and_parts_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    part = re.search(r'^version = "(.*)"', (ROOT / "services" / "router" / "pyproject.toml").read_text(), re.M)
    assert part
    assert chart["version"] == chart["appVersion"] == part[1]
    images = {container(each)["image"] for _, each in ours("defaults")}
    assert images == {f"kakeya-{name}:{part[1]}" for name in ("router", "worker", "http-shim")}
    assert container(workloads("large-model")["worker"])["image"] == "images.example.org/kakeya-worker:0.2.0"


def test_sets_are_rendered() -> None:
    assert all(len(rendered(name)) > 8 for name in VALUE_SETS)
