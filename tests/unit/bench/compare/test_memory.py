"""The memory of a server's processes, of real ones."""

import os
import socket
import subprocess
import sys
from typing import Any

import psutil
import pytest

from kakeya_bench.compare import memory

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


def test_of_who_listens_and_of_its_children() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        own = psutil.Process(process.pid).memory_info().rss
        with socket.create_connection(("127.0.0.1", port)):  # a client of the port is not the server
            for host in ("127.0.0.1", "localhost", "[::1]"):
                found = memory.rss_bytes(f"http://{host}:{port}/v1", None)
                assert found is not None
                assert own + 64 * MIB <= found < own + 128 * MIB
        assert memory.rss_bytes("http://example.com/v1", process.pid) == pytest.approx(found, rel=0.1)
        assert memory.rss_bytes(f"http://example.com:{port}", None) is None, "elsewhere it is not looked for"
        process.communicate()
    assert memory.rss_bytes(f"http://127.0.0.1:{port}/v1", None) is None
    assert memory.rss_bytes("http://example.com/v1", process.pid) is None, "it has gone"


@pytest.mark.parametrize(("url", "pid"), [("http://localhost/v1", 4), ("https://localhost", 2)])
def test_usual_ports_and_of_several_that_share_one_the_oldest(
    url: str, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_listening", lambda: [(7, 80), (4, 80), (2, 443), (3, 81), (6, 80)])
    assert memory._listener(url) == pid


def test_where_only_root_sees_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    own = psutil.Process.net_connections

    def refuses(**_: Any) -> None:
        raise psutil.AccessDenied

    def of_own(process: psutil.Process, **how: Any) -> Any:
        return own(process, **how) if process.pid == os.getpid() else refuses()

    monkeypatch.setattr(psutil, "net_connections", refuses)
    monkeypatch.setattr(psutil.Process, "net_connections", of_own)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert memory._listener(f"http://127.0.0.1:{port}") == os.getpid()
    assert memory._listener(f"http://127.0.0.1:{port}") is None


def test_a_child_that_ends_meanwhile_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        ended = psutil.Process(gone.pid)
    monkeypatch.setattr(psutil.Process, "children", lambda process, recursive: [ended])
    own = psutil.Process().memory_info().rss
    assert memory.rss_bytes("http://example.com", os.getpid()) == pytest.approx(own, rel=0.1)
