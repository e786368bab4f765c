"""The compose stack: built here, healthy, served through the published port."""

import json
import re
import urllib.request

import pytest
import yaml

from kakeya import AsyncClient
from kakeya_http_shim.settings import HttpSettings
from kakeya_router.settings import RouterSettings
from kakeya_shared.settings.service import ServiceSettings
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.torch_backend.exact.kernel import library
from tests.default_mode import is_exact, kv_item_bytes
from tests.end_to_end.containers.chat import chat
from tests.end_to_end.containers.engine import (
    NEEDS_ENGINE,
    ROOT,
    TAG,
    WINDOW,
    Published,
    compose,
    docker,
)
from tests.end_to_end.containers.watched import NEEDS_PROMETHEUS, watching
from tests.integration.processes import wait_until

pytestmark = NEEDS_ENGINE
# Of kakeya-nano, the default model: layers, kv heads, head_dim, type, K and V.
BYTES_PER_TOKEN = 6 * 2 * 32 * kv_item_bytes("bfloat16") * 2


def test_everything_is_healthy_and_nobody_is_root(stack: Published) -> None:
    health = compose("ps", "--format", "{{.Service}} {{.Health}}").splitlines()
    services = ("http", "redis", "router", "worker-1", "worker-2")
    assert sorted(health) == [f"{service} healthy" for service in services]
    for service in ("http", "router", "worker-1", "worker-2"):
        assert compose("exec", "-T", service, "id", "-u") == "10001"


async def test_a_conversation_on_each_worker(stack: Published) -> None:
    async with AsyncClient(stack.grpc) as client:
        first, second = await client.create_session(), await client.create_session()
        workers = set()
        for session in (first, second):
            async with session:
                async with session.turn(list(range(100)), max_tokens=20) as generation:
                    assert len([token async for token in generation]) == 20
                info = await session.info()
                assert (info.history_length, info.kv_live_bytes) == (120, (4 + WINDOW) * BYTES_PER_TOKEN)
                workers.add(info.worker)
        assert workers == {"worker-1", "worker-2"}


def test_the_image_brings_every_kernel_that_this_processor_runs(stack: Published) -> None:
    ask = f"from {library.__name__} import variants; print(*variants())"
    assert compose("exec", "-T", "worker-1", "python", "-c", ask).split() == list(library.variants())
    if is_exact():
        logs = compose("logs", "--no-color", "worker-1", "worker-2")
        assert logs.count(f'"kernel": "{library.chosen_variant()}"') == 2


def test_an_openai_client_is_answered(stack: Published) -> None:
    status, answer = chat(stack.http, "kakeya-nano")
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "stop"), answer
    assert "5" in answer["choices"][0]["message"]["content"]
    status, answer = chat(stack.http, "nonesuch")
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (404, "model_not_found", "model")


def test_the_live_page_is_served_where_it_was_asked_for(stack: Published) -> None:
    with urllib.request.urlopen(f"http://{stack.http}/ui", timeout=60) as page:
        assert page.status == 200
        assert "<html" in page.read().decode()


@NEEDS_PROMETHEUS
def test_with_the_profile_prometheus_watches_all(stack: Published) -> None:
    prometheus = watching(stack.environment)
    assert prometheus.value('max(kakeya_router_workers{state="ready"})') == 2
    wait_until(lambda: set(prometheus.rules().values()) == {"ok"}, "all alerts are looked at")
    assert prometheus.firing() == {}


def test_the_root_file_is_the_same_stack() -> None:
    whole, included = (
        json.loads(docker("compose", *flags, "config", "--format", "json"))
        for flags in (["-f", "compose/compose.yaml"], [])
    )
    for kind in ("name", "services", "networks", "volumes"):
        assert included[kind] == whole[kind]


def test_every_setting_is_explained() -> None:
    explained = {
        line.split("=")[0]: line.split("=", 1)[1]
        for line in (ROOT / "compose" / ".env.example").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    }
    text = (ROOT / "compose" / "compose.yaml").read_text()
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", text))
    assert explained == used | {"KAKEYA_HOST": "", "KAKEYA_TLS": ""}, "that these are named at all has a meaning"


@pytest.mark.parametrize(
    ("host", "router", "http"),
    [
        ("", ["router"], ["http"]),
        ("0.0.0.0", ["router", "--no-insecure"], ["http", "--allowed-hosts=*"]),
    ],
)
def test_only_on_loopback_it_may_be_open(host: str, router: list[str], http: list[str]) -> None:
    services = json.loads(compose("config", "--format", "json", environment={"KAKEYA_HOST": host}))["services"]
    assert (services["router"]["command"], services["http"]["command"]) == (router, http)
    for name in ("router", "http"):
        assert [port["host_ip"] for port in services[name]["ports"]] == [host or "127.0.0.1"]


def test_services_are_given_longer_than_they_take_to_end() -> None:
    services = yaml.safe_load((ROOT / "compose" / "compose.yaml").read_text())["services"]
    # After their grace routers and shims have 2 s for what is left.
    drains: dict[str, type[ServiceSettings]] = {
        "router": RouterSettings,
        "http": HttpSettings,
        "worker": WorkerSettings,
    }
    for name, service in services.items():
        if settings := drains.get(name.partition("-")[0]):
            grace = settings.model_fields["shutdown_grace_seconds"].default
            assert float(service["stop_grace_period"].removesuffix("s")) > grace + 2


def test_limits_of_processors_are_honoured(stack: Published) -> None:
    limits = {f"KAKEYA_{name}_CPUS": "0.75" for name in ("ROUTER", "WORKER", "HTTP")}
    services = json.loads(compose("config", "--format", "json", environment=limits))["services"]
    for name in ("router", "worker-1", "worker-2", "http"):
        assert services[name]["cpus"] == 0.75
    ask = "from kakeya_shared.process import processors; print(processors.usable())"
    alone = ("--rm", "--cpus", "0.75", "--entrypoint", "python")
    assert docker("run", *alone, f"kakeya-worker:{TAG}", "-c", ask) == "1"
