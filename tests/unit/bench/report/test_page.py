"""A report as a browser takes it, where what is foreign is text and nothing is elsewhere; in a terminal, in a pipe."""

from html.parser import HTMLParser
from importlib import resources

import pytest

from kakeya_bench.report.blocks import Badge, Figure, Section, Table
from kakeya_bench.report.console import print_sections
from kakeya_bench.report.page import page
from kakeya_bench.report.panels import Cloud, Level, Panel
from kakeya_bench.report.pictures import draw
from kakeya_bench.report.quantities import Bytes, Seconds

NASTY = "</title></style><script>alert('1')</script> & \" onload=\"x $\\frac$"


class Elements(HTMLParser):
    """All elements with their attributes, and all text outside style sheets."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data if self.found[-1:] and self.found[-1][0] != "style" else ""


def test_whatever_is_said_nothing_runs_and_nothing_is_loaded() -> None:
    panel = Panel(NASTY, Seconds, [Cloud(NASTY, [(1.0, 2.0)])], levels=[Level(NASTY, 1.0)])
    picture = draw("p", NASTY, [panel], x=NASTY)
    assert draw("p", NASTY, [panel], x=NASTY) == picture, "to the byte"
    sections = [
        Section(NASTY, [NASTY, Table([NASTY, "n"], [[NASTY, 1], [Badge("failed", NASTY), None]])]),
        Section("s", [Figure(picture, NASTY, NASTY)]),
    ]
    content = page(NASTY, [Badge("undecided", NASTY)], sections, json_name="a&b.json")
    elements = Elements(content)
    assert {tag for tag, _ in elements.found}.isdisjoint({"script", "link", "iframe", "object", "embed", "base"})
    for tag, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href") in (None, "a&b.json")
        assert (attributes.get("src") or "data:").startswith("data:"), tag
    (policy,) = (each["content"] for _, each in elements.found if "http-equiv" in each)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert elements.text.count(NASTY) == 9
    assert resources.files("kakeya_bench.report").joinpath("templates/page.css").read_bytes() in content
    assert not [word for word in (b"http:", b"https:", b"@import", b"url(") if word in content]


def test_a_path_that_is_no_text_is_said_as_well_as_it_can_be() -> None:
    assert b"<p>/tmp/\\udcff</p>" in page("title", [], [Section("s", ["/tmp/\udcff"])], json_name="a.json")


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
