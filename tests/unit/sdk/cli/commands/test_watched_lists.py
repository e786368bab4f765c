"""`--watch` of lists, against a scripted AdminService."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kakeya.cli.commands import sessions, tenants, workers
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.sdk.screen import Screen
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import fails
from tests.unit.sdk.watched import AT, everything, session, worker

ENTER, LEAVE, HOME = "\x1b[?1049h", "\x1b[?1049l", "\x1b[H"


@pytest.fixture(autouse=True)
def _address(admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "TLS_CA", "TLS_CERT", "TLS_KEY"):
        monkeypatch.delenv(f"KAKEYA_{name}", raising=False)
    monkeypatch.setenv("KAKEYA_ADDRESS", admin.address)


def _said(admin: ScriptedAdmin, *changes: pb.WatchResponse) -> None:
    """All of that, and then the key is revoked."""
    admin.streams.clear()
    admin.streams += [[*changes, fails("UNAUTHENTICATED")], []]


CHANGES = (
    everything(session("a", tenant="acme"), session("b", tenant="zeta"), continues=True),
    pb.WatchResponse(at=AT, sessions=[session("c", tenant="acme", pool="other")]),
    pb.WatchResponse(at=AT + 1, sessions=[session("a", tenant="acme", busy=True)], gone_session_ids=["b", "never"]),
)


def test_changes_come_as_lines_for_programs(admin: ScriptedAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    _said(admin, *CHANGES)
    assert sessions.main(["list", "--watch", "--json", "--tenant", "acme", "--pool", "tiny"]) == 1
    output = capsys.readouterr()
    lines = [json.loads(line) for line in output.out.splitlines()]
    assert [line["change"] for line in lines] == ["begins", "is", "is", "gone", "gone"]
    assert [line["session"]["session_id"] for line in lines if line["change"] == "is"] == ["a", "a"]
    assert [line["session"]["busy"] for line in lines if line["change"] == "is"] == [False, True]
    assert lines[-2]["id"] == "b"
    assert lines[0]["at"] == "2027-01-15T08:00:00Z"
    assert "key" in output.err


def test_tables_follow_one_another_in_a_file(admin: ScriptedAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    _said(admin, *CHANGES, pb.WatchResponse(at=AT + 2, gone_session_ids=["a", "c"]))
    assert sessions.main(["list", "--watch"]) == 1
    first, second, third = capsys.readouterr().out.strip().split("\n\n")
    assert [line.split()[0] for line in first.splitlines()] == ["SESSION", "c", "a", "b"]
    assert "busy" in second
    assert third == "no sessions"


def test_workers(admin: ScriptedAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    _said(admin, everything(), pb.WatchResponse(at=AT, workers=[worker("worker-b")], gone_incarnations=["worker-a-1"]))
    assert workers.main(["list", "--watch"]) == 1
    first, second = capsys.readouterr().out.strip().split("\n\n")
    assert first.splitlines()[1].startswith("worker-a")
    assert [line.split()[0] for line in second.splitlines()] == ["WORKER", "worker-b"]


def test_tenants_are_looked_at_again_when_something_changes(
    admin: ScriptedAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.tenants = [pb.Tenant(name="acme", quota=pb.Quota(max_sessions=3))]
    _said(admin, *CHANGES)
    assert tenants.main(["list", "--watch"]) == 1
    (table,) = capsys.readouterr().out.strip().split("\n\n")  # it was the same each time
    assert table.splitlines()[1].startswith("acme")
    assert len(admin.requests["ListTenants"]) == 2
    _said(admin, everything())
    assert tenants.main(["list", "--watch", "--json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert [each["name"] for each in json.loads(line)["tenants"]] == ["acme"]
    admin.tenants = []
    _said(admin, everything())
    assert tenants.main(["list", "--watch"]) == 1
    assert capsys.readouterr().out.strip() == "no tenants"


@contextmanager
def _screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """Within a test: pytest takes the standard streams back between a fixture and its test."""
    for name, value in (("TERM", "xterm"), ("COLUMNS", "60"), ("LINES", "4")):
        monkeypatch.setenv(name, value)
    with monkeypatch.context() as patch:
        screen = Screen(patch)
        try:
            yield screen
        finally:
            screen.close()


def test_a_terminal_is_redrawn_and_left_as_it_was(admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    _said(admin, everything(*(session(f"s{number}") for number in range(9))), pb.WatchResponse(begins=True, at=AT))
    with _screen(monkeypatch) as screen:
        assert sessions.main(["list", "--watch"]) == 1
        screen.wait_for(LEAVE)
        shown = screen.shown
    assert shown.index(ENTER) < shown.index(HOME) < shown.index(LEAVE)
    first, second = shown.split(HOME)[1:3]
    assert "(7 more)" in first
    assert "s1" in first
    assert "s2" not in first
    assert "no sessions" in second
    assert all(len(line.split("\x1b")[0]) <= 60 for line in first.split("\r\n"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_as_it_was(
    admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    admin.streams.append([everything(session("a"))])
    before = signal.getsignal(signal.SIGTERM)
    ended = threading.Event()
    with _screen(monkeypatch) as screen:

        def interrupt() -> None:
            screen.wait_for("worker-a")
            os.kill(os.getpid(), number)
            while not ended.wait(20):  # Python loses what a handler raises while a finalizer runs; one types it again
                os.kill(os.getpid(), number)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt if number is signal.SIGINT else SystemExit):
            try:
                sessions.main(["list", "--watch"])
            finally:
                ended.set()
        thread.join()
        screen.wait_for(LEAVE)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_list_ends_where_the_runtime_ends_its_stream(
    admin: ScriptedAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    for main in (sessions.main, workers.main, tenants.main):
        admin.streams.clear()
        admin.streams += [[everything(session("a"))], []]
        assert main(["list", "--watch", "--json"]) == 0
    assert capsys.readouterr().err == ""
