"""What the Mac is let run: of a fork nothing without reviewers."""

from pathlib import Path
from typing import Any

import pytest

from ops.github import mac_admission, mac_status
from tests.unit.ops.github.conftest import SHA, GitHub

REVIEWED = {
    "protection_rules": [{"type": "wait_timer"}, {"type": "required_reviewers", "reviewers": [{"type": "User"}]}]
}


@pytest.fixture
def output(hub: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(path))
    return path


def waits(description: str) -> tuple[str, Any]:
    return SHA, {"state": "pending", "context": "mac-integration", "description": description}


def test_a_branch_of_this_repository_needs_nobody(hub: GitHub, output: Path) -> None:
    assert mac_admission.main(["--pull-request", "7"]) == 0
    assert output.read_text() == f"sha={SHA}\nenvironment=mac\n"
    assert hub.statuses == [waits("waits for the Mac")]


@pytest.mark.parametrize("head", ["stranger/kakeya", None])
def test_a_fork_waits_for_a_reviewer(hub: GitHub, output: Path, head: str | None) -> None:
    hub.head_repository = head
    hub.environments["mac-approval"] = REVIEWED
    assert mac_admission.main(["--pull-request", "7"]) == 0
    assert output.read_text() == f"sha={SHA}\nenvironment=mac-approval\n"
    assert hub.statuses == [waits("waits for a reviewer and the Mac")]


@pytest.mark.parametrize(
    "environment",
    [
        None,
        {},
        {"protection_rules": []},
        {"protection_rules": [{"type": "wait_timer"}, {"type": "branch_policy"}]},
        {"protection_rules": [{"type": "required_reviewers", "reviewers": []}]},
    ],
)
def test_without_reviewers_nothing_of_a_fork_runs(
    hub: GitHub, output: Path, capsys: pytest.CaptureFixture[str], environment: dict[str, Any] | None
) -> None:
    hub.head_repository = "stranger/kakeya"
    if environment is not None:
        hub.environments["mac-approval"] = environment
    assert mac_admission.main(["--pull-request", "7"]) == 1
    assert not output.exists()
    assert hub.statuses == []
    assert "the environment mac-approval has no required reviewers" in capsys.readouterr().err


def test_an_environment_that_cannot_be_read_admits_nobody(
    hub: GitHub, output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.head_repository = "stranger/kakeya"
    hub.environments["mac-approval"] = REVIEWED
    hub.refused = "environments"
    assert mac_admission.main(["--pull-request", "7"]) == 1
    assert not output.exists()
    assert "403" in capsys.readouterr().err


def test_by_hand_it_is_the_commit_of_the_run(hub: GitHub, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_SHA", "b" * 40)
    assert mac_admission.main(["--pull-request", ""]) == 0
    assert output.read_text() == f"sha={'b' * 40}\nenvironment=mac\n"
    assert hub.requests == [f"POST /repos/kakeya/kakeya/statuses/{'b' * 40}"]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        ("", "'' is no commit"),
        ("7/files", "'7/files' is no number of a pull request"),
        ("-7", "'-7' is no number"),
        ("²", "is no number"),
        ("8", "404 Not Found"),
    ],
)
def test_what_is_no_pull_request(
    hub: GitHub, output: Path, capsys: pytest.CaptureFixture[str], number: str, says: str
) -> None:
    assert mac_admission.main([f"--pull-request={number}"]) == 1
    assert not output.exists()
    assert says in capsys.readouterr().err


def test_a_closed_one_does_not_run(hub: GitHub, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.state = "closed"
    assert mac_admission.main(["--pull-request", "7"]) == 1
    assert not output.exists()
    assert "pull request 7 is closed" in capsys.readouterr().err


def test_outside_of_a_workflow_it_is_printed(hub: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert mac_admission.main(["--pull-request", "7"]) == 0
    assert capsys.readouterr().out == f"sha={SHA}\nenvironment=mac\n"


@pytest.mark.parametrize(
    ("result", "state"), [("success", "success"), ("failure", "failure"), ("cancelled", "error"), ("skipped", "error")]
)
def test_how_it_ended_is_a_status_of_the_commit(
    hub: GitHub, monkeypatch: pytest.MonkeyPatch, result: str, state: str
) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.example")
    monkeypatch.setenv("GITHUB_RUN_ID", "12")
    assert mac_status.main(["--sha", SHA, "--result", result]) == 0
    ((sha, body),) = hub.statuses
    assert (sha, body["state"], body["context"]) == (SHA, state, "mac-integration")
    assert body["target_url"] == "https://github.example/kakeya/kakeya/actions/runs/12"
    assert len(body["description"]) <= 140  # GitHub's bound


def test_a_status_that_is_not_taken_is_an_error(hub: GitHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.refused = "statuses"
    assert mac_status.main(["--sha", SHA, "--result", "success"]) == 1
    assert "mac_status: error: POST" in capsys.readouterr().err
