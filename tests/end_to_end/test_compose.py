"""The compose stack: built here, healthy, served through the published port, gone afterwards."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import pytest

from kakeya import AsyncClient, Unauthenticated
from kakeya_worker.torch_backend.exact.kernel import library
from tests.default_mode import is_exact, kv_item_bytes
from tests.integration.processes import wait_until
from tests.prometheus_server import Prometheus

ROOT = Path(__file__).parents[2]
PROJECT = f"kakeya-test-{os.getpid()}"
# Of kakeya-nano, the default model: layers, kv heads, head_dim, type, K and V.
BYTES_PER_TOKEN = 6 * 2 * 32 * kv_item_bytes("bfloat16") * 2
WINDOW = 64
TAG = "test"
PROFILE = ("--profile", "observability")
# Of the profile's images the one that CI's engine has: made of Debian's package.
PROMETHEUS = "prom/prometheus:latest"


def why_no_engine() -> str:
    """Why Docker cannot be used here, or ""."""
    if not shutil.which("docker"):
        return "there is no docker command"
    answer = subprocess.run(["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True)
    return "" if answer.returncode == 0 else answer.stderr.strip().splitlines()[-1]


def has_image(name: str) -> bool:
    """Whether an image is here; none is fetched."""
    return (
        not why_no_engine() and not subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode
    )


# Images are built with whatever the machine must fetch; 20 minutes is for a slow line.
pytestmark = [
    pytest.mark.compose,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(why_no_engine() != "", reason=f"no Docker engine: {why_no_engine()}"),
]


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def compose(*arguments: str, environment: dict[str, str] | None = None) -> str:
    command = ["docker", "compose", "-p", PROJECT, "-f", "compose/compose.yaml", *arguments]
    settings = {"KAKEYA_VERSION": TAG, "KAKEYA_WINDOW": str(WINDOW), "KAKEYA_HTTP_UI": "on"} | (environment or {})
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Published(NamedTuple):
    """Where the stack of this module is found, each as HOST:PORT."""

    grpc: str
    http: str

    @property
    def environment(self) -> dict[str, str]:
        """What tells compose so."""
        ports = (address.rpartition(":")[2] for address in self)
        return dict(zip(("KAKEYA_PORT", "KAKEYA_HTTP_PORT"), ports, strict=True))


def chat(address: str, model: str, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of a chat completion through the published port."""
    body = {"model": model, "messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0}
    request = urllib.request.Request(f"http://{address}/v1/chat/completions", json.dumps(body).encode(), headers)
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.fixture(scope="module")
def stack() -> Iterator[Published]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        stack = Published(*(f"127.0.0.1:{listener.getsockname()[1]}" for listener in (one, other)))
    try:
        compose("up", "--build", "-d", "--wait", environment=stack.environment)
        yield stack
    finally:
        compose(*PROFILE, "down", "-v")


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


@pytest.mark.skipif(not has_image(PROMETHEUS), reason=f"there is no image {PROMETHEUS}")
def test_with_the_profile_prometheus_watches_all(stack: Published) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    watched = {"KAKEYA_PROMETHEUS_IMAGE": PROMETHEUS, "KAKEYA_PROMETHEUS_PORT": port}
    compose(*PROFILE, "up", "-d", "--wait", "--no-recreate", "prometheus", environment=stack.environment | watched)
    assert compose(*PROFILE, "ps", "--format", "{{.Health}}", "prometheus") == "healthy"
    prometheus = Prometheus(f"127.0.0.1:{port}")
    all_of = {"router:9464", "worker-1:9464", "worker-2:9464", "http:8000"}
    wait_until(lambda: prometheus.targets() == dict.fromkeys(all_of, ""), "all are scraped")
    assert prometheus.value('max(kakeya_router_workers{state="ready"})') == 2
    wait_until(lambda: set(prometheus.rules().values()) == {"ok"}, "all alerts are looked at")
    assert prometheus.firing() == {}


@pytest.mark.parametrize(
    ("image", "modules"),
    [("router", ("torch", "transformers", "mlx")), ("http-shim", ("torch", "redis", "mlx", "kakeya_router"))],
)
def test_small_images_hold_little(stack: Published, image: str, modules: tuple[str, ...]) -> None:
    found = f"import importlib.util as u; print([m for m in {modules} if u.find_spec(m)])"
    assert docker("run", "--rm", "--entrypoint", "python", f"kakeya-{image}:{TAG}", "-c", found) == "[]"


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
    assert explained == used | {"KAKEYA_HOST": ""}, "that it is named at all has a meaning"


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


async def test_with_keys_the_whole_stack_asks_for_them(stack: Published) -> None:
    key, token = secrets.token_hex(32), secrets.token_hex(32)
    keys = {
        "KAKEYA_AUTH": "keys",
        "KAKEYA_ADMIN_KEY": key,
        "KAKEYA_JOIN_TOKEN": token,
        "KAKEYA_ROUTER_INSECURE": "false",
    }
    compose("up", "-d", "--wait", environment=stack.environment | keys)
    async with AsyncClient(stack.grpc, api_key="") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.create_session()
    # The workers count as healthy before they have joined the new router.
    async with (
        AsyncClient(stack.grpc, api_key=key, max_attempts=30) as client,
        await client.create_session() as session,
    ):
        assert len(await session.turn([1, 2, 3], max_tokens=4).all()) == 4
    assert [chat(stack.http, "kakeya-nano", **given)[0] for given in ({}, {"authorization": f"Bearer {key}"})] == [
        401,
        200,
    ]
    logs = compose("logs", "--no-color")
    assert key not in logs
    assert token not in logs


def test_the_shim_ends_when_it_is_told(stack: Published) -> None:
    started = time.monotonic()
    compose("stop", "http")
    assert time.monotonic() - started < 12, "nothing ran that it could wait for"
    state = compose("ps", "--all", "--format", "{{.ExitCode}}", "http")
    assert state == "0"


def test_down_leaves_nothing(stack: Published) -> None:
    compose(*PROFILE, "down", "-v")
    mine = ["--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}"]
    assert docker("ps", "--all", *mine) == ""
    assert docker("volume", "ls", *mine) == ""
    assert docker("network", "ls", *mine) == ""
    for address in stack:
        with socket.socket() as client:
            host, _, port = address.rpartition(":")
            assert client.connect_ex((host, int(port))) != 0
