"""Prometheus of the compose stack, as the profile `observability` brings it."""

import socket
from collections.abc import Mapping
from typing import Final

import pytest

from tests.end_to_end.containers.engine import compose, has_image, with_profiles
from tests.integration.processes import wait_until
from tests.prometheus_server import Prometheus

# Of the profile's images the one that CI's engine has: made of Debian's package.
_IMAGE: Final = "prom/prometheus:latest"
NEEDS_PROMETHEUS: Final = pytest.mark.skipif(not has_image(_IMAGE), reason=f"there is no image {_IMAGE}")
OBSERVED: Final = with_profiles("observability")
_TARGETS: Final = ("router:9464", "worker-1:9464", "worker-2:9464", "http:8000")


def watching(environment: Mapping[str, str]) -> Prometheus:
    """It, healthy, once it has scraped all of the stack that has these variables."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    watched = {"KAKEYA_PROMETHEUS_IMAGE": _IMAGE, "KAKEYA_PROMETHEUS_PORT": port}
    compose(*OBSERVED, "up", "-d", "--wait", "--no-deps", "prometheus", environment={**environment, **watched})
    assert compose(*OBSERVED, "ps", "--format", "{{.Health}}", "prometheus") == "healthy"
    prometheus = Prometheus(f"127.0.0.1:{port}")
    wait_until(lambda: prometheus.targets() == dict.fromkeys(_TARGETS, ""), "all are scraped")
    return prometheus
