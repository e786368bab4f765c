"""A report in a terminal, which may be narrow, and in a pipe."""

import pytest

from kakeya_bench.report.blocks import Section, Table
from kakeya_bench.report.console import print_sections
from kakeya_bench.report.quantities import Bytes, Seconds

ROW = ["a few words", Seconds(0.5), Bytes(5), 1]
REPORT = [
    Section("not said", ["A sentence."]),
    Section("nor this", [Table(["of", "time", "size", "hidden"], [ROW], on_page=["hidden"])]),
]


def test_a_pipe_gets_lines_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of somebody else's moves the cursor or is taken for markup; a table without rows is left out."""
    foreign = Section("nor this", ["An \x1b[31merror [red]of[/] :warning:.", Table(["never"], []), "long " * 300])
    print_sections("a title", [*REPORT, foreign])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "a title",
        "A sentence.",
        "OF                TIME     SIZE",
        "a few words  500.00 ms  5 bytes",
        "An \\x1b[31merror [red]of[/] :warning:.",
        ("long " * 300).strip(),
    ]


def test_a_narrow_terminal_breaks_words_and_cuts_no_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "12")
    print_sections("a title", REPORT)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()][2:] == [
        "OF          TIME     SIZE",
        "a few  500.00 ms  5 bytes",
        "words",
    ]
