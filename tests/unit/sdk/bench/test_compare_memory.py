"""The memory of a server's processes, of real ones."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from kakeya.bench.compare import memory
from kakeya.bench.compare.memory import ServerMemory

MIB = 1 << 20
SERVER = """
import socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", 0))
hold = "import sys; held = bytearray(b'x') * (64 << 20); print('held', flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
child.communicate()
"""


@contextmanager
def server() -> Iterator[tuple[int, int]]:
    """A process that listens, and a child of it that holds 64 MiB: the port and the pid."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
        process.communicate()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_of_who_listens_and_of_its_children(host: str) -> None:
    with server() as (port, pid):
        own = psutil.Process(pid).memory_info().rss
        found = ServerMemory(f"http://{host}:{port}/v1", None).read()
        assert found is not None
        assert own + 64 * MIB <= found < own + 128 * MIB
        assert ServerMemory("http://example.com/v1", pid).read() == pytest.approx(found, rel=0.1)
    assert ServerMemory(f"http://{host}:{port}/v1", None).read() is None
    assert ServerMemory("http://example.com/v1", pid).read() is None, "it has gone"


def test_who_listens_elsewhere_is_not_looked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert ServerMemory(f"http://127.0.0.1:{port}", None).read() is not None
        assert ServerMemory(f"http://example.com:{port}", None).read() is None


def test_usual_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_listening", lambda: [(1, 80), (2, 443), (3, 81)])
    assert memory._listener("http://localhost/v1") == 1
    assert memory._listener("https://localhost/v1") == 2


def test_of_several_that_share_a_port_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_listening", lambda: [(7, 80), (5, 80), (4, 81), (6, 80)])
    assert memory._listener("http://localhost") == 5


def test_where_only_root_sees_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(**_: Any) -> None:
        raise psutil.AccessDenied

    own = psutil.Process.net_connections

    def of_own(process: psutil.Process, **how: Any) -> Any:
        if process.pid != os.getpid():
            raise psutil.AccessDenied(process.pid)
        return own(process, **how)

    monkeypatch.setattr(psutil, "net_connections", refuses)
    monkeypatch.setattr(psutil.Process, "net_connections", of_own)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert memory._listener(f"http://127.0.0.1:{port}") == os.getpid()
    assert memory._listener(f"http://127.0.0.1:{port}") is None


def test_a_client_of_the_port_is_not_the_server() -> None:
    with server() as (port, pid), socket.create_connection(("127.0.0.1", port)):
        assert memory._listener(f"http://127.0.0.1:{port}") == pid


def test_a_child_that_ends_meanwhile_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        ended = psutil.Process(gone.pid)
    monkeypatch.setattr(psutil.Process, "children", lambda process, recursive: [ended])
    own = psutil.Process().memory_info().rss
    assert ServerMemory("http://example.com", os.getpid()).read() == pytest.approx(own, rel=0.1)
