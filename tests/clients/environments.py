"""Clients that people have, unmodified, each in an environment of its own.

`make test-clients`, `make test-loops` and `make test-agents` install them.
"""

from pathlib import Path

import pytest

_BUILT = Path(__file__).resolve().parents[2] / "build" / "clients"


def program(client: str, name: str) -> str:
    """The path of a program of a client; the test fails where the client is not installed."""
    return str(folder(client, f"bin/{name}"))


def folder(client: str, name: str) -> Path:
    """What is installed of a client; the test fails where that is not there."""
    path = _BUILT / client / name
    if not path.exists():
        pytest.fail(f"{client} is not installed (make test-clients, make test-loops, make test-agents)")
    return path
