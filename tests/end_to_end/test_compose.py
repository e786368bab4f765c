"""The compose stack: built here, healthy, served through the published port, gone afterwards."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya import AsyncClient, Unauthenticated
from tests.default_mode import kv_item_bytes

ROOT = Path(__file__).parents[2]
PROJECT = f"kakeya-test-{os.getpid()}"
# Of kakeya-nano, the default model: layers, kv heads, head_dim, type, K and V.
BYTES_PER_TOKEN = 6 * 2 * 32 * kv_item_bytes("bfloat16") * 2
WINDOW = 64
TAG = "test"


def why_no_engine() -> str:
    """Why Docker cannot be used here, or ""."""
    if not shutil.which("docker"):
        return "there is no docker command"
    answer = subprocess.run(["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True)
    return "" if answer.returncode == 0 else answer.stderr.strip().splitlines()[-1]


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
    settings = {"KAKEYA_VERSION": TAG, "KAKEYA_WINDOW": str(WINDOW)} | (environment or {})
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def published(address: str) -> dict[str, str]:
    return {"KAKEYA_PORT": address.rpartition(":")[2]}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    try:
        compose("up", "--build", "-d", "--wait", environment=published(address))
        yield address
    finally:
        compose("down", "-v")


def test_everything_is_healthy_and_nobody_is_root(address: str) -> None:
    health = compose("ps", "--format", "{{.Service}} {{.Health}}").splitlines()
    assert sorted(health) == ["redis healthy", "router healthy", "worker-1 healthy", "worker-2 healthy"]
    for service in ("router", "worker-1", "worker-2"):
        assert compose("exec", "-T", service, "id", "-u") == "10001"


async def test_a_conversation_on_each_worker(address: str) -> None:
    async with AsyncClient(address) as client:
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


def test_the_router_image_holds_no_torch(address: str) -> None:
    found = "import importlib.util as u; print([m for m in ('torch', 'transformers', 'mlx') if u.find_spec(m)])"
    assert docker("run", "--rm", "--entrypoint", "python", f"kakeya-router:{TAG}", "-c", found) == "[]"


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


@pytest.mark.parametrize(("host", "command"), [("", ["router"]), ("0.0.0.0", ["router", "--no-insecure"])])
def test_only_on_loopback_it_may_be_open(host: str, command: list[str]) -> None:
    router = json.loads(compose("config", "--format", "json", environment={"KAKEYA_HOST": host}))["services"]["router"]
    assert router["command"] == command
    assert [port["host_ip"] for port in router["ports"]] == [host or "127.0.0.1"]


async def test_with_keys_the_whole_stack_asks_for_them(address: str) -> None:
    key, token = secrets.token_hex(32), secrets.token_hex(32)
    keys = {
        "KAKEYA_AUTH": "keys",
        "KAKEYA_ADMIN_KEY": key,
        "KAKEYA_JOIN_TOKEN": token,
        "KAKEYA_ROUTER_INSECURE": "false",
    }
    compose("up", "-d", "--wait", environment=published(address) | keys)
    async with AsyncClient(address, api_key="") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.create_session()
    # The workers count as healthy before they have joined the new router.
    async with AsyncClient(address, api_key=key, max_attempts=30) as client, await client.create_session() as session:
        assert len(await session.turn([1, 2, 3], max_tokens=4).all()) == 4
    logs = compose("logs", "--no-color")
    assert key not in logs
    assert token not in logs


def test_down_leaves_nothing(address: str) -> None:
    compose("down", "-v")
    mine = ["--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}"]
    assert docker("ps", "--all", *mine) == ""
    assert docker("volume", "ls", *mine) == ""
    assert docker("network", "ls", *mine) == ""
    with socket.socket() as client:
        host, _, port = address.rpartition(":")
        assert client.connect_ex((host, int(port))) != 0
