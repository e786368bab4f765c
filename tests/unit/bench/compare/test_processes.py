"""Memory and processor time of a server's processes, of real ones."""

import os
import socket
import subprocess
import sys
from typing import Any

import psutil
import pytest

from kakeya_bench.compare import processes

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
                found = processes.rss_bytes(f"http://{host}:{port}/v1", None)
                assert found is not None
                assert own + 64 * MIB <= found < own + 128 * MIB
        assert processes.rss_bytes("http://example.com/v1", process.pid) == pytest.approx(found, rel=0.1)
        assert processes.rss_bytes(f"http://example.com:{port}", None) is None, "elsewhere it is not looked for"
        process.communicate()
    assert processes.rss_bytes(f"http://127.0.0.1:{port}/v1", None) is None
    assert processes.rss_bytes("http://example.com/v1", process.pid) is None, "it has gone"


@pytest.mark.parametrize(("url", "pid"), [("http://localhost/v1", 4), ("https://localhost", 2)])
def test_usual_ports_and_of_several_that_share_one_the_oldest(
    url: str, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_listening", lambda: [(7, 80), (4, 80), (2, 443), (3, 81), (6, 80)])
    assert processes._listener(url) == pid


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
        assert processes._listener(f"http://127.0.0.1:{port}") == os.getpid()
    assert processes._listener(f"http://127.0.0.1:{port}") is None


def test_a_child_that_ends_meanwhile_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        ended = psutil.Process(gone.pid)
    monkeypatch.setattr(psutil.Process, "children", lambda process, recursive: [ended])
    own = psutil.Process().memory_info().rss
    assert processes.rss_bytes("http://example.com", os.getpid()) == pytest.approx(own, rel=0.1)


BURN = """
import threading, time
def burn():
    while time.thread_time() < 0.3:
        pass
thread = threading.Thread(target=burn)
thread.start()
thread.join()
print(flush=True)
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="another process's clock is read on Linux")
def test_processor_time_is_that_of_all_threads_that_there_were() -> None:
    process = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    process.stdout.readline()
    taken = processes.cpu_seconds([process.pid])
    own = processes.cpu_seconds([process.pid, os.getpid()])
    process.stdin.close()
    process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert taken is not None
    assert 0.3 <= taken <= used.ru_utime + used.ru_stime + 0.01  # the system counts these in ticks
    assert own is not None
    assert own > taken
    assert processes.cpu_seconds([process.pid]) is None, "it has gone"


def test_processor_time_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.cpu_seconds([]) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert processes.cpu_seconds([os.getpid()]) is None
