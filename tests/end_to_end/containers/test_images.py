"""The images hold what their process needs, and take little; they need neither rights nor a place to write."""

import json
from functools import cache
from typing import Any

import pytest

from tests.end_to_end.containers.engine import IMAGES, NEEDS_ENGINE, TAG, Published, docker, held_down

pytestmark = NEEDS_ENGINE
MB = 10**6
BASE = "python:3.11-slim-bookworm"
# Beyond the base image, and beyond torch.
MOST_BYTES = {"router": 70 * MB, "http-shim": 100 * MB, "worker": 120 * MB}
every_image = pytest.mark.parametrize("image", MOST_BYTES)
LOOK = """
import collections, json, pathlib
root, packages = pathlib.Path("/opt/kakeya"), next(pathlib.Path("/opt/kakeya/lib").glob("*/site-packages"))
files = [each for each in root.rglob("*") if each.is_file()]
modules = [each.parent.parent / each.name.partition(".")[0] for each in files if each.suffix == ".pyc"]
unwanted = {
    "compiled twice": [name for name, number in collections.Counter(modules).items() if number > 1],
    "tests": [each for each in root.rglob("tests") if each.is_dir()],
    "tools": [each for each in (packages / "pip", packages / "ziglang", packages / "hatchling") if each.exists()],
    "sources": [each for each in (pathlib.Path("/src"),) if each.exists()],
    "headers": [each for each in files if packages / "torch" / "include" in each.parents],
}
print(json.dumps({
    "unwanted": {name: list(map(str, found)) for name, found in unwanted.items() if found},
    "compiled": len(modules) / sum(each.suffix == ".py" for each in files),
}))
"""
WEIGH = """
import importlib.metadata, re
seen, wanted = set(), ["torch"]
while wanted:
    name = re.match("[A-Za-z0-9._-]+", wanted.pop())[0].lower()
    if name not in seen:
        seen.add(name)
        try:
            wanted += [each for each in importlib.metadata.requires(name) or () if "extra ==" not in each]
        except importlib.metadata.PackageNotFoundError:
            seen.remove(name)  # for another system
print(sum(file.size or 0 for name in seen for file in importlib.metadata.files(name)))
"""


@cache
def inspected(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(docker("image", "inspect", image))[0]
    return found


def torch_bytes() -> int:
    """Of all files of torch and of what it requires, as pip installs them, without bytecode."""
    return int(run("worker", "python", "-c", WEIGH))


def run(image: str, *arguments: str) -> str:
    """A program of an image, with neither rights nor a place to write."""
    alone = ("--rm", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none")
    return docker("run", *alone, "--entrypoint", *arguments[:1], f"kakeya-{image}:{TAG}", *arguments[1:])


@every_image
def test_an_image_is_small(stack: Published, image: str) -> None:
    torch = torch_bytes() if image == "worker" else 0
    beyond = inspected(f"kakeya-{image}:{TAG}")["Size"] - inspected(BASE)["Size"] - torch
    print(f"{image}: the base and {beyond / MB:.1f} MB{f', torch {torch / MB:.0f} MB' if torch else ''}")
    assert 0 < beyond <= MOST_BYTES[image]


@every_image
def test_an_image_holds_no_tools_and_bytecode_once(stack: Published, image: str) -> None:
    found = json.loads(run(image, "python", "-c", LOOK))
    assert found["unwanted"] == {}
    assert found["compiled"] > 0.95


@every_image
def test_an_image_says_what_it_is(stack: Published, image: str) -> None:
    config = inspected(f"kakeya-{image}:{TAG}")["Config"]
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in config["Labels"].items()}
    assert labels["title"] == f"kakeya-{image}"
    assert labels["licenses"] == "Apache-2.0"
    assert labels["description"]
    assert config["Healthcheck"]["Test"]
    assert config["User"] == "10001:10001"


@pytest.mark.parametrize(
    ("image", "modules"),
    [("router", ("torch", "transformers", "mlx")), ("http-shim", ("torch", "redis", "mlx", "kakeya_router"))],
)
def test_small_images_hold_little(stack: Published, image: str, modules: tuple[str, ...]) -> None:
    found = f"import importlib.util as u; print([m for m in {modules} if u.find_spec(m)])"
    assert run(image, "python", "-c", found) == "[]"


def test_snapshots_go_to_any_url(stack: Published) -> None:
    store = (
        "from kakeya_worker.snapshot_stores.fsspec import FsspecSnapshotStore as Store; import cryptography; "
        "store = Store('memory://snapshots'); store.write('a/b', b'1', b'2'); print(store.open('a/b').read())"
    )
    assert run("worker", "python", "-c", store) == "b'12'"


@pytest.mark.parametrize("service", IMAGES)
def test_a_service_has_no_rights_and_writes_nowhere(stack: Published, service: str) -> None:
    held_down(service)
