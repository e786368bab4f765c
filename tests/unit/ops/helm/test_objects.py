"""What stands around the pods: who reaches them, how many there are, who looks at them, how clients come."""

import re
from typing import Any

import pytest
import yaml

from tests.unit.ops.helm.chart import (
    NAMESPACE,
    ROOT,
    VALUE_SETS,
    Document,
    container,
    of_kind,
    ours,
    pod_labels,
    rendered,
    selects,
    workloads,
)

METRICS = set(re.findall(r"`(kakeya_\w+)`", (ROOT / "docs" / "metrics.md").read_text()))
ANYBODY = {"app": "of-the-same-namespace"}
every_set = pytest.mark.parametrize("value_set", VALUE_SETS)


def lets_in(value_set: str, target: Document, port: int, source: dict[str, str]) -> bool:
    """Whether policies let a pod of this namespace, with these labels, in at a port of a workload's pods."""
    policies = [
        each["spec"]
        for each in of_kind(value_set, "NetworkPolicy").values()
        if selects(each["spec"]["podSelector"], pod_labels(target))
    ]
    if not policies:
        return True
    rules = [rule for policy in policies for rule in policy["ingress"]]
    return any(
        {"port": port} in rule["ports"] and any(is_near(peer, source) for peer in rule["from"]) for rule in rules
    )


def is_near(peer: Document, source: dict[str, str]) -> bool:
    """Whether a peer takes a pod of this namespace."""
    return "podSelector" in peer and "namespaceSelector" not in peer and selects(peer["podSelector"], source)


@every_set
def test_only_routers_reach_redis_and_workers(value_set: str) -> None:
    if not of_kind(value_set, "NetworkPolicy"):
        assert value_set == "redis-secret"
        return
    found = workloads(value_set)
    for target, port in (("worker", 50052), ("redis", 6379)):
        if target not in found:
            continue
        for workload in found.values():
            is_router = container(workload)["name"] == "router"
            assert lets_in(value_set, found[target], port, pod_labels(workload)) == is_router
        assert not lets_in(value_set, found[target], port, ANYBODY)


@every_set
def test_workers_and_shims_reach_routers(value_set: str) -> None:
    found = workloads(value_set)
    for _, router in ((name, each) for name, each in ours(value_set) if container(each)["name"] == "router"):
        for part in {"worker", "http"} & found.keys():
            assert lets_in(value_set, router, 50051, pod_labels(found[part]))


def test_clients_come_from_where_values_say() -> None:
    for part, port in (("router", 50051), ("http", 8000)):
        assert lets_in("defaults", workloads("defaults")[part], port, ANYBODY)
        assert not lets_in("gateway", workloads("gateway")[part], port, ANYBODY)
        rules = of_kind("gateway", "NetworkPolicy")[part]["spec"]["ingress"]
        (peers,) = (rule["from"] for rule in rules if {"port": port} in rule["ports"])
        assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}} in peers


@every_set
def test_no_rule_lets_everybody_in(value_set: str) -> None:
    for policy in of_kind(value_set, "NetworkPolicy").values():
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        assert all(rule["from"] and rule["ports"] for rule in policy["spec"]["ingress"])


def test_the_world_reaches_routers_with_tunnels_alone() -> None:
    open_to_the_world: dict[str, set[int]] = {}
    for name, policy in of_kind("tunnels", "NetworkPolicy").items():
        for rule in policy["spec"]["ingress"]:
            if any("ipBlock" in peer for peer in rule["from"]):
                open_to_the_world.setdefault(name, set()).update(port["port"] for port in rule["ports"])
    assert open_to_the_world == {"tunnel": {50051, 50053}}
    selector = of_kind("tunnels", "NetworkPolicy")["tunnel"]["spec"]["podSelector"]
    taken = {name for name, each in workloads("tunnels").items() if selects(selector, pod_labels(each))}
    assert taken == {"tunnel-a", "tunnel-b"}
    router = pod_labels(workloads("tunnels")["router"])
    assert lets_in("tunnels", workloads("tunnels")["tunnel-a"], 50053, router)


@every_set
def test_each_workload_selects_its_own_pods_alone(value_set: str) -> None:
    found = workloads(value_set)
    for name, workload in found.items():
        taken = [other for other, each in found.items() if selects(workload["spec"]["selector"], pod_labels(each))]
        assert taken == [name]


@every_set
def test_one_pod_of_a_part_is_disturbed_at_a_time(value_set: str) -> None:
    budgets = [each["spec"] for each in of_kind(value_set, "PodDisruptionBudget").values()]
    assert all(each["maxUnavailable"] == 1 for each in budgets)
    for _, workload in ours(value_set):
        assert sum(selects(each["selector"], pod_labels(workload)) for each in budgets) == 1


def test_routers_scale_by_processor_and_queue() -> None:
    scaler = of_kind("scaling", "HorizontalPodAutoscaler")["router"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == "kakeya-router"
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 9)
    assert [metric["type"] for metric in scaler["metrics"]] == ["Resource", "Pods"]
    assert scaler["metrics"][1]["pods"]["metric"]["name"] in METRICS
    assert "replicas" not in workloads("scaling")["router"]["spec"], "or each upgrade would set it back"
    alone = of_kind("cpu-scaling", "HorizontalPodAutoscaler")["router"]["spec"]
    assert [metric["type"] for metric in alone["metrics"]] == ["Resource"]
    assert workloads("defaults")["router"]["spec"]["replicas"] == 2


def test_workers_scale_by_free_bytes_and_queue() -> None:
    scaled = of_kind("scaling", "ScaledObject")["worker"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == "kakeya-worker"
    free, queue = (trigger["metadata"] for trigger in scaled["triggers"])
    assert (free["threshold"], queue["threshold"]) == ("0.75", "4")
    assert "kakeya_kv_utilization_ratio" in free["query"]
    assert "kakeya_queued_requests" in queue["query"]
    for each in (free, queue):
        assert set(re.findall(r"kakeya_\w+", each["query"])) <= METRICS
        assert each["query"].count(f'{{namespace="{NAMESPACE}"') == each["query"].count("kakeya_")
    assert "replicas" not in workloads("scaling")["worker"]["spec"]
    assert "ScaledObject" not in {each["kind"] for each in rendered("defaults")}


def scrape_jobs() -> set[str]:
    prometheus = yaml.safe_load((ROOT / "ops" / "prometheus" / "prometheus.yaml").read_text())
    return {job["job_name"] for job in prometheus["scrape_configs"]}


def test_monitors_find_services_and_name_jobs_as_alerts_do() -> None:
    monitors = of_kind("monitors", "ServiceMonitor")
    services = of_kind("monitors", "Service").values()
    jobs: set[str] = set()
    for monitor in monitors.values():
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["interval"] == "30s"
        found = [
            service
            for service in services
            if selects(monitor["spec"]["selector"], service["metadata"]["labels"])
            and any(port["name"] == endpoint["port"] for port in service["spec"]["ports"])
        ]
        assert len(found) == 1
        jobs.update(each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "job")
    assert jobs == scrape_jobs()
    assert of_kind("tls-issuer", "ServiceMonitor")["http"]["spec"]["endpoints"][0]["scheme"] == "https"


def test_metrics_are_not_at_the_port_that_is_open_to_clients() -> None:
    router = of_kind("monitors", "Service")["router"]["spec"]
    assert [port["name"] for port in router["ports"]] == ["grpc"]


@pytest.mark.parametrize(("kind", "service", "host"), [("GRPCRoute", "router", "grpc"), ("HTTPRoute", "http", "api")])
def test_routes_lead_to_services(kind: str, service: str, host: str) -> None:
    route: dict[str, Any] = of_kind("gateway", kind)[service]["spec"]
    assert route["parentRefs"] == [{"name": "public", "namespace": "gateways", "sectionName": "https"}]
    assert route["hostnames"] == [f"{host}.example.org"]
    ((backend,),) = (rule["backendRefs"] for rule in route["rules"])
    found = of_kind("gateway", "Service")[backend["name"].removeprefix("kakeya-")]
    assert backend["port"] in [port["port"] for port in found["spec"]["ports"]]
    assert kind not in {each["kind"] for each in rendered("defaults")}


def test_certificates_fill_the_secrets_that_pods_read() -> None:
    certificates = of_kind("tls-issuer", "Certificate")
    assert {name: each["spec"]["secretName"] for name, each in certificates.items()} == {
        "router": "router-tls",
        "worker": "worker-tls",
        "http": "http-tls",
    }
    for each in certificates.values():
        assert each["spec"]["ipAddresses"] == ["127.0.0.1"], "health checks in the pod"
        assert each["spec"]["issuerRef"] == {"name": "private-ca", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert not of_kind("tls-secrets", "Certificate")


def test_who_is_outside_comes_by_services_of_the_kind_that_is_asked_for() -> None:
    services = of_kind("services", "Service")
    assert services["router"]["spec"]["type"] == "LoadBalancer"
    assert services["router"]["metadata"]["annotations"] == {"example.org/balancer": "public"}
    assert services["http"]["spec"]["type"] == "NodePort"
    worker = services["worker"]["spec"]
    assert worker["clusterIP"] == "None"
    assert worker["publishNotReadyAddresses"]
