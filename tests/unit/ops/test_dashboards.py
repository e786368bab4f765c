"""Dashboards ask for what there is: metrics and labels as docs/metrics.md has them, in PromQL that Prometheus reads."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ops.grafana.__main__ import DIRECTORY, main
from ops.grafana.board import Board, Panel
from ops.grafana.boards import BOARDS
from ops.grafana.promql import WINDOW
from tests.unit.ops.test_alerts import rules

ROOT = Path(__file__).resolve().parents[3]
PANELS = [(board, panel) for board in BOARDS for panel in board.panels]
EXPRS = [query.expr for _, panel in PANELS for query in panel.queries]
OF_PROMETHEUS = {"up": {"job", "instance"}, "process_cpu_seconds_total": {"job", "instance"}}
_ROW = re.compile(r"^\| `(?P<name>kakeya_\w+)` \| (?P<kind>\w+) \|[^|]*\|(?P<labels>[^|]*)\|", re.M)
_METRIC = re.compile(r"\b(kakeya_\w+|process_\w+|up)\b(?:{([^}]*)})?")


def declared() -> dict[str, set[str]]:
    """Labels by each name under which a series is scraped."""
    found = dict(OF_PROMETHEUS)
    for row in _ROW.finditer((ROOT / "docs" / "metrics.md").read_text()):
        labels = set(re.findall(r"`(\w+)`", row["labels"]))
        suffixes = ("_bucket", "_sum", "_count") if row["kind"] == "histogram" else ("",)
        found |= {row["name"] + suffix: labels | ({"le"} if suffix == "_bucket" else set()) for suffix in suffixes}
    return found


@pytest.mark.parametrize("expr", [*EXPRS, *(str(rule["expr"]) for rule in rules().values())])
def test_what_is_asked_for_is_declared(expr: str) -> None:
    labels = declared()
    asked = list(_METRIC.finditer(expr))
    assert asked
    for metric in asked:
        assert metric[1] in labels, f"{metric[1]} is not in docs/metrics.md"
        selected = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", metric[2] or ""))
        grouped = {each.strip() for by in re.findall(r"by \(([^)]*)\)", expr) for each in by.split(",")}
        assert selected | grouped <= labels[metric[1]], f"{metric[1]} has no such label"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_dashboard_has_titles_meanings_and_units(board: Board) -> None:
    titles = [panel.title for panel in board.panels]
    assert len(set(titles)) == len(titles)
    for panel in board.panels:
        assert panel.meaning.endswith("."), panel.title
    made = json.loads((DIRECTORY / f"{board.uid}.json").read_text())
    panels = [panel for panel in made["panels"] if panel["type"] != "row"]
    panels += [inner for row in made["panels"] if row["type"] == "row" for inner in row.get("panels") or []]
    assert [panel["title"] for panel in panels] == titles
    assert {panel["datasource"]["uid"] for panel in panels} == {"${source}"}


@pytest.mark.parametrize(
    ("board", "panel"), PANELS, ids=lambda each: each.uid if isinstance(each, Board) else each.title
)
def test_lines_that_are_told_apart_have_names(board: Board, panel: Panel) -> None:
    for query in panel.queries:
        named = {each.strip() for each in re.findall(r"{{([^}]+)}}", query.legend)}
        grouped = {each.strip() for by in re.findall(r"by \(([^)]*)\)", query.expr) for each in by.split(",")}
        assert grouped - {"le", "pool"} <= named | {"instance", "job"}
        assert len(panel.queries) == 1 or query.legend


def test_the_files_are_what_the_declarations_make(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_reads_what_panels_ask(tmp_path: Path) -> None:
    asked = [{"record": f"panel:{number}", "expr": expr.replace(WINDOW, "1m")} for number, expr in enumerate(EXPRS)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": asked}]}))
    command = ["promtool", "check", "rules", str(tmp_path / "panels.yaml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
