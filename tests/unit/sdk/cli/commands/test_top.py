"""`kakeya top`, driven in a terminal of its own process, and what it says where it cannot run."""

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fcntl import ioctl
from struct import pack
from termios import TIOCSWINSZ

import pytest

from kakeya import Unavailable
from kakeya.cli.commands import commands, top
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import Fault, fails
from tests.unit.sdk.watched import AT, everything, session, worker

_ESCAPES = re.compile(r"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]")
LONG_SECONDS = 120.0


@dataclass
class Terminal:
    """A process whose terminal this is."""

    process: "subprocess.Popen[bytes]"
    master: int
    shown: str = field(default="")

    def wait_for(self, holds: Callable[[str], bool]) -> None:
        until = time.monotonic() + LONG_SECONDS
        while not holds(self.text):
            assert time.monotonic() < until, self.text
            with suppress(OSError):  # it has ended
                self.shown += os.read(self.master, 65_536).decode(errors="replace")

    @property
    def text(self) -> str:
        """All that was written, without what moves the cursor."""
        return _ESCAPES.sub("", self.shown)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> int:
        """Reads on until it ends; its status."""
        until = time.monotonic() + LONG_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            with suppress(OSError):
                self.shown += os.read(self.master, 65_536).decode(errors="replace")
        return self.process.wait(1)


@contextmanager
def _top(address: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, pack("HHHH", 40, 140, 0, 0))
    environment = {**os.environ, "KAKEYA_ADDRESS": address, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-m", "kakeya", "top"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_it_is_installed() -> None:
    assert commands.summary(commands.find()["top"]) == top.SUMMARY


def test_it_shows_what_runs_and_follows_it(admin: ScriptedAdmin) -> None:
    pytest.importorskip("textual")
    turn = pb.LastTurn(prefill_seconds=0.031, first_token_seconds=0.052, total_seconds=1, num_tokens=9, ended_at=AT)
    retained = [pb.HistoryRange(start=0, end=4), pb.HistoryRange(start=84, end=100)]
    first = session("tiny.first", tenant="acme", client_label="mine", lane=0, retained=retained, last_turn=turn)
    queue = pb.PoolQueue(pool="tiny", num_waiting=3, tenants=[pb.QueuedTenant(tenant="acme", num_waiting=2)])
    change = pb.WatchResponse(at=AT + 1, sessions=[session("tiny.second", busy=True, lane=2)], queues=[queue])
    late = worker(last_heartbeat_age_seconds=7)
    admin.streams.append([everything(first), change, pb.WatchResponse(at=AT + 2, workers=[late])])
    with _top(admin.address) as terminal:
        terminal.wait_for(lambda text: "tiny.second" in text and "silent for 7 s" in text)
        for shown in ("tiny.first", "acme", "mine", "31 ms", "52 ms", "worker-a", "busy", "queue of tiny: 3 (acme 2)"):
            terminal.wait_for(lambda text, shown=shown: shown in text)  # type: ignore[misc]
        assert "sorted by used last" in terminal.text
        terminal.type("s")
        terminal.wait_for(lambda text: "history" in text.split("sorted by ")[-1])
        terminal.type("q")
        assert terminal.ended() == 0
        assert "\x1b[?1049l" in terminal.shown  # what was there before is back


@pytest.mark.parametrize("fault", [fails("UNAUTHENTICATED")])
def test_what_the_router_refuses_ends_it(admin: ScriptedAdmin, fault: Fault) -> None:
    pytest.importorskip("textual")
    admin.streams += [[everything(), fault], []]
    with _top(admin.address) as terminal:
        assert terminal.ended() == 1
        assert "kakeya top: error: scripted UNAUTHENTICATED; set KAKEYA_API_KEY" in terminal.text


@pytest.mark.parametrize("missing", ["rich", "textual"])
def test_without_its_extra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("kakeya.cli.top.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [missing, *(name for name in sys.modules if name.startswith(f"{missing}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert top.main([]) == 1
    assert "install it with: pip install 'kakeya[top]'" in capsys.readouterr().err


def test_it_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert top.main([]) == 2
    assert "--watch --json" in capsys.readouterr().err
    assert top.main(["--tls-cert", "/nowhere"]) == 2
    assert "--tls-cert and --tls-key go together" in capsys.readouterr().err


def test_it_says_why_it_ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Ended:
        error = Unavailable("the router is gone")

        def __init__(self, connection: object) -> None:
            assert connection is not None

        def run(self) -> None:
            """It has nothing to show."""

    monkeypatch.setattr("kakeya.cli.top.top_app.TopApp", Ended)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert top.main(["--address", "127.0.0.1:1"]) == 1
    assert "the router is gone" in capsys.readouterr().err
    monkeypatch.setattr(Ended, "error", None)
    assert top.main(["--address", "127.0.0.1:1"]) == 0
