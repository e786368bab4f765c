"""What the tests with containers share: an engine, and one stack on it, from test_compose to test_shutdown."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.end_to_end.containers.engine import PROFILES, Published, compose, with_profiles


@pytest.fixture(scope="package")
def stack() -> Iterator[Published]:
    with ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in Published._fields]
        published = Published(*(f"127.0.0.1:{each.getsockname()[1]}" for each in listeners))
    try:
        compose("up", "--build", "-d", "--wait", environment=published.environment)
        yield published
    finally:
        compose(*with_profiles(*PROFILES), "down", "-v")
