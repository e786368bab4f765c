"""A Docker engine, and the stack of `compose/` on it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
TAG = "test"
WINDOW = 64
PROJECT = f"kakeya-test-{os.getpid()}"
PROFILES = ("observability", "scale", "tls")
IMAGES = {"router": "router", "worker-1": "worker", "http": "http-shim"}
"""By the service that builds it: the image, without what all have in front."""


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
NEEDS_ENGINE = [
    pytest.mark.compose,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(why_no_engine() != "", reason=f"no Docker engine: {why_no_engine()}"),
]
"""Of a module's tests, its `pytestmark`."""


def docker(*arguments: str, environment: dict[str, str] | None = None) -> str:
    command = ["docker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | (environment or {}))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Published(NamedTuple):
    """Where the stack is found from outside, each as HOST:PORT."""

    grpc: str
    http: str
    balanced_grpc: str
    balanced_http: str

    @property
    def environment(self) -> dict[str, str]:
        """What tells compose so."""
        names = ("KAKEYA_PORT", "KAKEYA_HTTP_PORT", "KAKEYA_BALANCER_PORT", "KAKEYA_BALANCER_HTTP_PORT")
        return dict(zip(names, (address.rpartition(":")[2] for address in self), strict=True))


def compose(*arguments: str, environment: dict[str, str] | None = None, sources: Path = ROOT) -> str:
    """A command of Compose on the stack of the tests, without its profiles unless they are named.

    Args:
        sources: whose compose.yaml it is.
    """
    settings = {"KAKEYA_VERSION": TAG, "KAKEYA_WINDOW": str(WINDOW), "KAKEYA_HTTP_UI": "on"} | (environment or {})
    file = str(sources / "compose" / "compose.yaml")
    return docker("compose", "-p", PROJECT, "-f", file, *arguments, environment=settings)


def with_profiles(*names: str) -> tuple[str, ...]:
    """The flags."""
    return tuple(flag for name in names for flag in ("--profile", name))


def container(service: str) -> str:
    """The name of the container of a service."""
    return f"{PROJECT}-{service}-1"


def held_down(service: str) -> None:
    """The process of a container has no capability, gains none, and cannot write to its root file system."""
    status = compose("exec", "-T", service, "cat", "/proc/1/status")
    rights = dict(line.split(":\t", 1) for line in status.splitlines())
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(rights[kind], 16) == 0
    assert rights["NoNewPrivs"] == "1"
    root = next(line for line in compose("exec", "-T", service, "cat", "/proc/mounts").splitlines() if " / " in line)
    assert "ro" in root.split()[3].split(",")
