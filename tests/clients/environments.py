"""Clients that people have, unmodified, each in an environment of its own (`make test-clients`)."""

from pathlib import Path

import pytest

_BUILT = Path(__file__).resolve().parents[2] / "build" / "clients"


def program(client: str, name: str) -> str:
    """The path of a program of a client; the test fails where the client is not installed."""
    path = _BUILT / client / "bin" / name
    if not path.exists():
        pytest.fail(f"{client} is not installed (make test-clients)")
    return str(path)
