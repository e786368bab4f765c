"""Which pull requests get `needs-mac-m4`, and what follows from it."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from ops.github import mac_label, mac_paths
from tests.unit.ops.github.conftest import SHA, GitHub

ROOT = Path(__file__).resolve().parents[4]
MLX = "services/worker/src/kakeya_worker/mlx_backend/decoder.py"
STARTED = ("mac-integration.yml", {"ref": "main", "inputs": {"pull_request": "7"}})
NOT_NEEDED = (SHA, {"state": "success", "context": "mac-integration", "description": "no file asks for a Mac"})


def files(number: int, *last: str) -> list[dict[str, Any]]:
    """So many, the named ones last."""
    return [{"filename": name} for name in [*(f"docs/page-{each}.md" for each in range(number - len(last))), *last]]


def run() -> int:
    return mac_label.main(["--pull-request", "7"])


def test_the_last_of_350_files_asks_for_it(hub: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files = files(350, MLX)
    assert run() == 0
    assert hub.labels == ["needs-mac-m4"]
    assert hub.dispatched == [STARTED]
    assert hub.statuses == []
    assert [request for request in hub.requests if "/files" in request] == [
        "GET /repos/kakeya/kakeya/pulls/7/files?per_page=100",
        *(f"GET /repos/kakeya/kakeya/pulls/7/files?per_page=100&page={page}" for page in (2, 3, 4)),
    ]
    assert capsys.readouterr().out.splitlines() == [
        f"asks for a Mac: {MLX}",
        "needs-mac-m4: added",
        "mac-integration.yml: started",
    ]


def test_none_of_350_files_asks_for_it(hub: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files = files(350)
    assert run() == 0
    assert (hub.labels, hub.dispatched, hub.statuses) == ([], [], [NOT_NEEDED])
    assert capsys.readouterr().out.splitlines() == ["needs-mac-m4: unchanged", "no Mac is needed"]


def test_it_is_taken_off_when_no_file_asks_any_more(hub: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files = files(350)
    hub.label("somebody", "documentation")
    hub.label("github-actions[bot]")
    assert run() == 0
    assert (hub.labels, hub.dispatched, hub.statuses) == (["documentation"], [], [NOT_NEEDED])
    assert "needs-mac-m4: removed" in capsys.readouterr().out


def test_a_push_to_a_change_that_has_it_starts_the_mac_again(hub: GitHub) -> None:
    hub.files = files(350, MLX)
    hub.label("github-actions[bot]")
    assert run() == 0
    assert (hub.labels, hub.dispatched, hub.statuses) == (["needs-mac-m4"], [STARTED], [])


@pytest.mark.parametrize("login", ["somebody", None])
def test_what_a_person_has_put_on_stays(hub: GitHub, login: str | None) -> None:
    hub.files = files(3)
    hub.label("github-actions[bot]")
    hub.labels.clear()
    hub.label(login)
    hub.events += [{"event": "commented"}] * 250  # the last one that put it on is on the first page
    assert run() == 0
    assert (hub.labels, hub.dispatched, hub.statuses) == (["needs-mac-m4"], [STARTED], [])


def test_the_old_name_of_a_moved_file_counts(hub: GitHub) -> None:
    hub.files = [{"filename": "docs/decoder.py", "previous_filename": MLX}]
    assert run() == 0
    assert hub.labels == ["needs-mac-m4"]


def test_files_that_github_does_not_tell_ask_for_it(hub: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files, hub.num_more_files = files(3000), 12
    assert run() == 0
    assert hub.labels == ["needs-mac-m4"]
    assert "asks for a Mac: 12 files that GitHub does not tell" in capsys.readouterr().out


def test_few_of_many_are_named(hub: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files = files(9, *(f"ops/mac/{number}.py" for number in range(8)))
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4:6] == ["asks for a Mac: ops/mac/4.py", "and 3 more"]


def test_somebody_else_took_it_off(hub: GitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.label("github-actions[bot]")
    answer = hub.answer

    def faster(method: str, path: str, body: Any) -> Any:
        if method == "DELETE":
            hub.labels.clear()
        return answer(method, path, body)

    monkeypatch.setattr(hub, "answer", faster)
    assert run() == 0
    assert hub.statuses == [NOT_NEEDED]


@pytest.mark.parametrize(
    "refused", ["files?per_page=100&page=3", "GET /repos/kakeya/kakeya/pulls/7", "issues/7/events"]
)
def test_what_is_not_read_to_its_end_changes_nothing(
    hub: GitHub, capsys: pytest.CaptureFixture[str], refused: str
) -> None:
    hub.files = files(350)
    hub.label("github-actions[bot]")
    hub.refused = refused
    assert run() == 1
    assert (hub.labels, hub.dispatched, hub.statuses) == (["needs-mac-m4"], [], [])
    said = capsys.readouterr().err
    assert said.startswith("mac_label: error: GET")
    assert refused.partition(" /repos/")[2] in said
    assert "403 Resource not accessible by integration" in said


@pytest.mark.parametrize("refused", ["DELETE", "statuses"])
def test_what_is_not_written_is_an_error(hub: GitHub, capsys: pytest.CaptureFixture[str], refused: str) -> None:
    hub.label("github-actions[bot]")
    hub.refused = refused
    assert run() == 1
    assert hub.statuses == []
    assert "403 Resource not accessible by integration" in capsys.readouterr().err


@pytest.mark.parametrize("pattern", mac_paths.PATHS)
def test_each_pattern_of_the_table_means_files(pattern: str) -> None:
    folder = ROOT / pattern.partition("*")[0]
    found = [folder] if folder.is_file() else [each for each in folder.rglob("*") if each.is_file()]
    assert found
    assert all(fnmatchcase(str(each.relative_to(ROOT)), pattern) for each in found)


def test_what_lies_beside_does_not_ask() -> None:
    beside = [
        "services/worker/src/kakeya_worker/torch_backend/decoder.py",
        "services/worker/src/kakeya_worker/mlx_backend.py",
        "ops/README.md",
        "docs/services/worker/pyproject.toml",
        ".github/workflows/mac-integration.yml",
    ]
    assert mac_paths.asking([*beside, MLX]) == [MLX]
