"""A slice of `make cuts`, and how it reads the routers' logs."""

import json
from pathlib import Path

import pytest

from tests.soak.cuts import tunnels
from tests.soak.cuts.links import are_possible
from tests.soak.cuts.proof import Cuts
from tests.soak.cuts.tunnels import Change


@pytest.mark.heavy
@pytest.mark.skipif(not are_possible(), reason="network namespaces take root, and a kernel that has them")
def test_a_few_cuts(tmp_path: Path) -> None:
    report = Cuts(cuts=6, seed=1).run(tmp_path)
    assert report.violations == []
    assert report.facts["num_sessions"] > 0
    assert sum(report.facts["cuts"].values()) == 6


@pytest.mark.parametrize(
    ("found", "back"),
    [
        ([(1, "a", True)], 0.0),
        ([(1, "a", True), (5, "a", False), (12, "a", True)], 2.0),
        ([(1, "a", True), (5, "a", False), (12, "b", True), (12.5, "a", True)], 2.0),
        ([(1, "a", True), (11, "a", False), (11.5, "a", True)], 1.5),
        ([(1, "a", True), (1, "b", True), (11, "a", False), (11.5, "a", True)], 0.0),
        ([(1, "a", True), (30, "a", False)], 0.0),
        ([(1, "a", True), (5, "a", False)], None),
        ([], None),
    ],
)
def test_it_is_back_when_a_tunnel_stands_for_good(found: list[tuple[float, str, bool]], back: float | None) -> None:
    assert tunnels.seconds_until_back([Change(*each) for each in found], 10.0) == back


def test_changes_are_read_from_all_logs(tmp_path: Path) -> None:
    def line(event: str, second: int, worker_id: str = "w") -> str:
        return json.dumps({"event": event, "worker_id": worker_id, "timestamp": f"2026-01-01T00:00:0{second}+00:00"})

    one, two = tmp_path / "one.log", tmp_path / "two.log"
    one.write_text(f"{line('a tunnel stands', 1)}\nno event\n{line('a tunnel has ended', 3)}\n")
    two.write_text(f"{line('a tunnel stands', 2)}\n{line('a tunnel stands', 2, 'other')}\n{line('call', 2)}\n")
    found = tunnels.changes([one, two], "w")
    assert [(each.router, each.stands) for each in found] == [("one", True), ("two", True), ("one", False)]
