"""How far a bench is, in a terminal and elsewhere."""

import io
import re
import time

import pytest
from rich.console import Console

from kakeya_bench.report import progress
from kakeya_bench.report.progress import LINE_SECONDS

ERASED = "\x1b[2K"


class _Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "_AGAIN_SECONDS", 3600.0)
    return clock


def test_a_pipe_gets_a_line_every_half_a_minute(clock: _Clock) -> None:
    file = io.StringIO()
    with progress.shown(Console(file=file), "session") as shown:
        for seconds in range(1, 100):
            clock.now = 1_000.0 + seconds
            shown.show(seconds / 120, f"turn {seconds}")
    assert LINE_SECONDS == 30
    assert file.getvalue() == (
        "session: 25%, about 90 s left; turn 30\n"
        "session: 50%, about 60 s left; turn 60\n"
        "session: 75%, about 30 s left; turn 90\n"
    )


def test_a_pipe_gets_nothing_of_what_is_over_soon(clock: _Clock) -> None:
    file = io.StringIO()
    with progress.shown(Console(file=file), "session") as shown:
        shown.show(0.5, "turn 1")
        clock.now += LINE_SECONDS - 0.1
        shown.show(1.0, "turn 2")
    assert file.getvalue() == ""


def test_nobody_knows_what_is_left_where_nothing_is_done(clock: _Clock) -> None:
    file = io.StringIO()
    with progress.shown(Console(file=file), "load") as shown:
        clock.now += LINE_SECONDS
        shown.show(0.0, "opening sessions")
        clock.now += LINE_SECONDS
        shown.show(0.1, "rate 5")
    assert file.getvalue() == "load: 0%, opening sessions\nload: 10%, about 540 s left; rate 5\n"


def test_what_takes_long_is_said_again(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_AGAIN_SECONDS", 0.01)
    file, line = io.StringIO(), "load: 50%, about 30 s left; rate 5\n"
    with progress.shown(Console(file=file), "load") as shown:
        shown.show(0.5, "rate 5")
        clock.now += LINE_SECONDS
        deadline = time.monotonic() + 60
        while not file.getvalue().endswith("\n") and time.monotonic() < deadline:
            time.sleep(0.01)
    assert file.getvalue() == line


def test_what_goes_on_is_shown_as_it_is_in_a_pipe(clock: _Clock) -> None:
    """Errors of somebody else's have brackets in them, and are longer than a terminal is wide."""
    file, error = io.StringIO(), "turn 3 failed: [/red] [bold]no lane[/bold] :warning: " + "long " * 40
    with progress.shown(Console(file=file), "session") as shown:
        clock.now += LINE_SECONDS
        shown.show(0.5, error)
    assert file.getvalue() == f"session: 50%, about 30 s left; {error}\n"


def _terminal(file: io.StringIO, clock: _Clock) -> Console:
    return Console(file=file, force_terminal=True, width=120, get_time=clock.monotonic, _environ={"TERM": "xterm"})


def _last_line(file: io.StringIO) -> str:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    return [line for line in re.split(r"[\r\n]", text) if line.strip()][-1].strip()


def test_a_terminal_gets_a_bar_that_goes_away(clock: _Clock) -> None:
    file = io.StringIO()
    with progress.shown(_terminal(file, clock), "session") as shown:
        shown.show(0.42, "12 turns")
    assert re.fullmatch(r"session ━\S+ +42 % 0:00:00 left: -:--:-- 12 turns", _last_line(file))
    assert file.getvalue().endswith(ERASED)


def test_a_bar_says_what_is_left_also_where_turns_are_rare(clock: _Clock) -> None:
    file = io.StringIO()
    with progress.shown(_terminal(file, clock), "session") as shown:
        for turn in range(1, 11):
            clock.now += 60
            shown.show(turn / 40, f"turn {turn}")
    assert re.fullmatch(r"session \S+ +25 % 0:10:00 left: 0:30:00 turn 10", _last_line(file))


def test_nothing_is_left_when_it_is_full(clock: _Clock) -> None:
    file = io.StringIO()
    with progress.shown(_terminal(file, clock), "session") as shown:
        clock.now += 60
        shown.show(0.5, "turn 1")
        clock.now += 60
        shown.show(1.0, "replaying")
    assert re.fullmatch(r"session \S+ +100 % 0:02:00 left: 0:00:00 replaying", _last_line(file))


def test_what_goes_on_is_shown_as_it_is_in_a_terminal(clock: _Clock) -> None:
    file = io.StringIO()
    with progress.shown(_terminal(file, clock), "session") as shown:
        shown.show(0.5, "turn 3 failed: [/red] no lane")
    assert "turn 3 failed: [/red] no lane" in file.getvalue()
