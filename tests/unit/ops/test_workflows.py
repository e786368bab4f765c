"""What must hold of the workflows, beyond what actionlint and zizmor look for."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.github import mac_admission, mac_label

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from lint_workflows import own_labels

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / ".github").rglob("*.y*ml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
USES = re.compile(r"^ *(?:- )?uses: (.*)", re.MULTILINE)
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def read(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    return found


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actions_are_pinned_by_digest_with_their_version(file: Path) -> None:
    used = USES.findall(file.read_text())
    assert [each for each in used if not each.startswith("./") and not PINNED.fullmatch(each)] == []


def test_one_action_has_one_version() -> None:
    used = {each for file in FILES for each in USES.findall(file.read_text()) if "@" in each}
    names = [each.partition("@")[0] for each in used]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_jobs_ask_for_little(file: Path) -> None:
    workflow = read(file.name)
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["cancel-in-progress"] is True
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 90, name
        assert "permissions" in job, name
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_what_runs_on_the_mac_is_a_target_that_is_there() -> None:
    mac = read("mac-integration.yml")["jobs"]["mac"]
    assert mac["runs-on"] == ["self-hosted", "macOS", "ARM64", "kakeya-mac-m4"]
    assert mac["timeout-minutes"] == 90
    assert set(own_labels(ROOT / ".github" / "actionlint.yaml")) <= set(mac["runs-on"])
    commands = [step["run"] for step in mac["steps"] if "run" in step]
    assert len(commands) == 6
    for command in commands:
        target = re.match(r"make (mac-[a-z-]+)", command)
        assert target, command
        done = subprocess.run(["make", "-n", target[1]], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_mac_runs_what_was_admitted() -> None:
    """Neither a token that writes nor a commit that nobody looked at; its environment is the admission's."""
    workflow = read("mac-integration.yml")
    mac = workflow["jobs"]["mac"]
    assert list(workflow[True]) == ["workflow_dispatch"]  # YAML reads the key `on` so
    assert mac["needs"] == "admit"
    assert mac["environment"] == "${{ needs.admit.outputs.environment }}"
    assert mac["permissions"] == {"contents": "read"}
    assert mac["steps"][0]["with"]["ref"] == "${{ needs.admit.outputs.sha }}"
    assert "if" not in mac
    assert all("GITHUB_TOKEN" not in step.get("env", {}) for step in mac["steps"])


def test_auto_label_runs_this_repositorys_script_alone() -> None:
    workflow = read("auto-label.yml")
    checkout, label = steps(workflow)
    assert list(workflow[True]) == ["pull_request_target"]
    assert checkout["with"]["ref"] == "${{ github.event.repository.default_branch }}"
    assert label["run"] == 'python3 -m ops.github.mac_label --pull-request "$PULL_REQUEST"'
    for each in (workflow["concurrency"]["group"], workflow["jobs"]["label"]["if"]):
        assert f"'{mac_label.LABEL}'" in each


@pytest.mark.parametrize(
    "module",
    ["github.mac_admission", "github.mac_label", "github.mac_status", "mac.prewarm", "mac.summary", "mac.wheels"],
)
def test_each_script_runs_with_the_standard_library_alone(module: str) -> None:
    command = [sys.executable, "-S", "-m", f"ops.{module}"]
    done = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"python -m ops.{module} " in done.stdout
    assert subprocess.run([*command, "--unknown"], cwd=ROOT, capture_output=True).returncode == 2


def test_the_names_are_the_same_everywhere() -> None:
    assert (ROOT / ".github" / "workflows" / mac_label.WORKFLOW).is_file()
    said = (ROOT / "ops" / "README.md").read_text()
    for name in (mac_label.LABEL, mac_admission.OPEN, mac_admission.APPROVED, "kakeya-mac-m4"):
        assert f"`{name}`" in said


def test_the_gate_waits_for_all_jobs_of_a_pull_request() -> None:
    jobs = read("ci.yml")["jobs"]
    gate = jobs.pop("gate")
    of_pull_requests = [name for name, job in jobs.items() if "if" not in job]
    assert gate["needs"] == of_pull_requests
    assert gate["steps"][0]["run"] == f'test "$RESULTS" = "{" ".join(["success"] * len(of_pull_requests))}"'
