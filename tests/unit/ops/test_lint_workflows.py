"""What `make lint-workflows` makes of what its tools say. The tools are stand-ins; node is the real one."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import lint_workflows

WORKFLOW = """\
jobs:
  first:
    steps:
      - uses: actions/checkout
      - run: echo ${{ github.ref }} $HOME
  second:
    uses: ./.github/workflows/other.yml
"""
FOUND = {"line": 5, "column": 3, "kind": "runner-label"}
TOLD = (
    'label "kakeya-mac-m4" is unknown. available labels are "macos"',
    'label "another" is unknown. available labels are "macos"',
    'property "kakeya-mac-m4" is not defined',
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        ".github/workflows/one.yml": WORKFLOW,
        ".github/actionlint.yaml": "self-hosted-runner:\n  labels: [kakeya-mac-m4]\n",
        ".ci/run": "echo script\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """None of them finds anything."""
    folder = tmp_path / "tools"
    module(folder, "return [];")
    program(folder, "zizmor", "exit 0")
    program(folder, "shellcheck", "cat >/dev/null; echo '[]'")
    return folder


def module(tools: Path, body: str) -> None:
    """actionlint's, whose function has this body."""
    folder = tools / "node_modules" / "@tktco" / "node-actionlint" / "build"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run-lint.js").write_text(f"exports.runLint = async (text, name) => {{ {body} }};\n")


def program(tools: Path, name: str, script: str) -> None:
    path = tools / "venv" / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_nothing_is_found(root: Path, tools: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert lint_workflows.main(tools, root) == 0
    assert capfd.readouterr().out == "1 workflows, 1 shell steps and 1 script: nothing found\n"


def test_labels_of_our_own_are_known(root: Path, tools: Path, capfd: pytest.CaptureFixture[str]) -> None:
    module(tools, f"return {json.dumps([FOUND | {'message': message} for message in TOLD])};")
    assert lint_workflows.main(tools, root) == 1
    file = root / ".github" / "workflows" / "one.yml"
    assert capfd.readouterr().out.splitlines() == [f"{file}:5:3: {message} [runner-label]" for message in TOLD[1:]]


def test_actionlint_gets_the_text_of_each(root: Path, tools: Path, capfd: pytest.CaptureFixture[str]) -> None:
    module(tools, "return [{message: `${name} ${text.length}`, line: 1, column: 1, kind: 'x'}];")
    assert lint_workflows.main(tools, root) == 1
    assert f"one.yml:1:1: <stdin> {len(WORKFLOW)} [x]" in capfd.readouterr().out


def test_shellcheck_gets_steps_and_scripts(root: Path, tools: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = """printf '[{"line": 1, "code": 2086, "message": "%s"}]' "$(cat)"; exit 1"""
    program(tools, "shellcheck", said)
    assert lint_workflows.main(tools, root) == 1
    assert capfd.readouterr().out.splitlines() == [
        "one.yml: first: step 2, line 1: echo put_in $HOME [SC2086]",
        ".ci/run, line 1: echo script [SC2086]",
    ]


def test_zizmor_alone_is_enough(root: Path, tools: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program(tools, "zizmor", "echo dangerous; exit 14")
    assert lint_workflows.main(tools, root) == 1
    assert capfd.readouterr().out == "dangerous\n"


def test_a_tool_that_fails_is_no_verdict(root: Path, tools: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program(tools, "shellcheck", "cat >/dev/null; echo no such option >&2; exit 3")
    assert lint_workflows.main(tools, root) == 1
    assert "error: shellcheck: no such option" in capfd.readouterr().err
    module(tools, "throw new Error('broken');")
    assert lint_workflows.main(tools, root) == 1
    assert "error: actionlint:" in capfd.readouterr().err
