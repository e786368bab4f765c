"""The compose stack ends: soon, and without a trace."""

import socket
import time

from tests.end_to_end.containers.engine import (
    NEEDS_ENGINE,
    PROFILES,
    PROJECT,
    Published,
    compose,
    docker,
    with_profiles,
)

pytestmark = NEEDS_ENGINE


def test_the_shim_ends_when_it_is_told(stack: Published) -> None:
    started = time.monotonic()
    compose("stop", "http")
    assert time.monotonic() - started < 12, "nothing ran that it could wait for"
    state = compose("ps", "--all", "--format", "{{.ExitCode}}", "http")
    assert state == "0"


def test_down_leaves_nothing(stack: Published) -> None:
    compose(*with_profiles(*PROFILES), "down", "-v")
    mine = ["--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}"]
    assert docker("ps", "--all", *mine) == ""
    assert docker("volume", "ls", *mine) == ""
    assert docker("network", "ls", *mine) == ""
    for address in stack:
        with socket.socket() as client:
            host, _, port = address.rpartition(":")
            assert client.connect_ex((host, int(port))) != 0
