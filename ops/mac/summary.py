"""A page in Markdown of what the Mac's workflow left: how its tests ended, each failure, each gate of the session.

    python -m ops.mac.summary DIRECTORY >>"$GITHUB_STEP_SUMMARY"      # or: make mac-summary

A file that is missing is named as missing: its step failed before it wrote anything, or did not run. Exit status: 0
where all files are there and say that all is well, else 1.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

TESTS = {"conformance": "MLX conformance", "mixed-stack": "Mixed stack"}
EVIDENCE = "evidence.json"
_MAX_FAILURES = 20
_MAX_LINES = 15


class Summary:
    """Of one run.

    Attributes:
        lines: of the page.
        well: nothing is missing and nothing has failed.
    """

    def __init__(self, directory: Path) -> None:
        self.lines: list[str] = ["## Mac integration", ""]
        self.well = True
        self._failures: list[str] = []
        self.lines += ["| tests | passed | failed | skipped | seconds |", "| --- | --: | --: | --: | --: |"]
        for name, title in TESTS.items():
            self._add_tests(title, directory / f"{name}.xml")
        self.lines += self._failures[:_MAX_FAILURES]
        if len(self._failures) > _MAX_FAILURES:
            self.lines += ["", f"and {len(self._failures) - _MAX_FAILURES} more: see the files of the run."]
        self._add_evidence(directory / EVIDENCE)

    def _add_tests(self, title: str, file: Path) -> None:
        try:
            (suite,) = ElementTree.parse(file).getroot().iter("testsuite")  # noqa: S314 - written by pytest here
        except (OSError, ElementTree.ParseError, ValueError):
            self.well = False
            self.lines.append(f"| {title} | `{file.name}` is missing | | | |")
            return
        tests, failures, errors, skipped = (
            int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")
        )
        failed = failures + errors
        self.well &= not failed and tests > 0
        seconds = float(suite.get("time", "0"))
        self.lines.append(f"| {title} | {tests - failed - skipped} | {failed} | {skipped} | {seconds:.0f} |")
        self._failures += _failures(suite)

    def _add_evidence(self, file: Path) -> None:
        try:
            found = json.loads(file.read_text())
        except (OSError, ValueError):
            self.well = False
            self.lines += ["", f"No session was measured: `{file.name}` is missing."]
            return
        self.well &= found["verdict"] == "holds"
        session, host = found["session"], found["host"]
        where = host["processor"] or host["machine"]
        self.lines += [
            "",
            f"Session of {session['num_turns']} turns on {where}: **{found['verdict']}**.",
            "",
            *(f"- {problem}" for problem in found["problems"]),
            "",
            "| gate | outcome | why |",
            "| --- | --- | --- |",
            *(f"| {name} | {gate['outcome']} | {_cell(gate['reason'])} |" for name, gate in session["gates"].items()),
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="of the files")
    summary = Summary(parser.parse_args(arguments).directory)
    print("\n".join(summary.lines))
    return 0 if summary.well else 1


def _failures(suite: ElementTree.Element) -> Iterator[str]:
    """What of a suite has failed, folded, each with the last lines of what was said."""
    for case in suite.iter("testcase"):
        for outcome in [*case.iter("failure"), *case.iter("error")]:
            name = f"{case.get('classname', '')}::{case.get('name', '')}"
            said = (outcome.text or outcome.get("message") or "").splitlines()[-_MAX_LINES:]
            lines = "\n".join(f"    {line}" for line in said)
            yield f"\n<details><summary><code>{_escaped(name)}</code></summary>\n\n{lines}\n\n</details>"


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|").replace("\n", " ")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


if __name__ == "__main__":
    sys.exit(main())
