"""How far a bench is, in a terminal and elsewhere."""

import io
import re
import time
from contextlib import AbstractContextManager

import pytest
from rich.console import Console

from kakeya_bench.report import progress
from kakeya_bench.report.progress import LINE_SECONDS, Progress


class _Clock:
    """Stands in for the module `time`."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "_AGAIN_SECONDS", 3600.0)
    return clock


def _pipe(name: str = "load") -> tuple[io.StringIO, AbstractContextManager[Progress]]:
    file = io.StringIO()
    return file, progress.shown(Console(file=file), name)


def test_a_pipe_gets_a_line_every_half_a_minute(clock: _Clock) -> None:
    file, pipe = _pipe("session")
    with pipe as shown:
        for seconds in range(1, 100):
            clock.now = 1_000.0 + seconds
            shown.show(seconds / 120, f"turn {seconds}")
    assert LINE_SECONDS == 30
    assert file.getvalue() == (
        "session: 25%, about 90 s left; turn 30\n"
        "session: 50%, about 60 s left; turn 60\n"
        "session: 75%, about 30 s left; turn 90\n"
    )


def test_what_is_over_soon_is_not_said_and_what_is_left_not_before_anything_is_done(clock: _Clock) -> None:
    file, pipe = _pipe()
    with pipe as shown:
        clock.now += LINE_SECONDS - 0.1
        shown.show(0.0, "opening sessions")
        assert file.getvalue() == ""
        clock.now += 0.1
        shown.show(0.0, "opening sessions")
        clock.now += LINE_SECONDS
        shown.show(0.1, "rate 5")
    assert file.getvalue() == "load: 0%, opening sessions\nload: 10%, about 540 s left; rate 5\n"


def test_what_takes_long_is_said_again(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_AGAIN_SECONDS", 0.01)
    file, pipe = _pipe()
    with pipe as shown:
        shown.show(0.5, "rate 5")
        clock.now += LINE_SECONDS
        deadline = time.monotonic() + 60
        while not file.getvalue().endswith("\n") and time.monotonic() < deadline:
            time.sleep(0.01)
    assert file.getvalue() == "load: 50%, about 30 s left; rate 5\n"


def test_what_goes_on_is_shown_as_it_is(clock: _Clock) -> None:
    """Errors of somebody else's have brackets in them, and are longer than a terminal is wide."""
    (file, pipe), error = _pipe(), "turn 3 failed: [/red] [bold]no lane[/bold] :warning: " + "long " * 40
    with pipe as shown:
        clock.now += LINE_SECONDS
        shown.show(0.5, error)
    assert file.getvalue() == f"load: 50%, about 30 s left; {error}\n"


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ([0.42], r"━\S+ +42 % 0:01:00 left: -:--:-- turn 1: \[/red\] failed"),
        ([turn / 40 for turn in range(1, 11)], r"\S+ +25 % 0:10:00 left: 0:30:00 turn 10: \[/red\] failed"),
        ([0.5, 1.0], r"\S+ +100 % 0:02:00 left: 0:00:00 turn 2: \[/red\] failed"),
    ],
)
def test_a_terminal_gets_a_bar_that_goes_away(clock: _Clock, shares: list[float], says: str) -> None:
    """What is left is told by the whole run: turns may be rare."""
    file = io.StringIO()
    environment = {"TERM": "xterm"}
    console = Console(file=file, force_terminal=True, width=120, get_time=clock.monotonic, _environ=environment)
    with progress.shown(console, "session") as shown:
        for turn, share in enumerate(shares, 1):
            clock.now += 60
            shown.show(share, f"turn {turn}: [/red] failed")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    assert re.fullmatch(f"session {says}", [line for line in re.split(r"[\r\n]", text) if line.strip()][-1].strip())
    assert file.getvalue().endswith("\x1b[2K"), "erased"
