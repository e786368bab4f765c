"""Puts faults into a copy of the sources, one after the other: the tests that are to notice each must be red.

    python -m tests.mutations [--only WORDS] [--json FILE]

Exit status: 0 where every fault was noticed; 1 where one was not; 2 where one is not to be found in the sources.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.mutations.faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]
SECONDS = 600
_FAILED = 1  # pytest's status where tests failed


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORDS", help="faults whose name or file has these words")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each fault")
    given = parser.parse_args(argv)
    chosen = [fault for fault in FAULTS if given.only in f"{fault.name} {fault.file}"]
    if lost := [fault.name for fault in chosen if (ROOT / fault.file).read_text().count(fault.old) != 1]:
        print("not to be found once in the sources:", *lost, sep="\n  ", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="kakeya-mutations-") as folder:
        found = _noticed(chosen, copied(Path(folder) / "tree"))
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    missed = [name for name, noticed in found.items() if not noticed]
    print(f"{len(found) - len(missed)} of {len(found)} faults were noticed")
    for name in missed:
        print(f"NOT NOTICED: {name}")
    return int(bool(missed))


def copied(target: Path) -> Path:
    """The sources as they are here, with what is built."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    built = (str(file.relative_to(ROOT)) for file in ROOT.glob("services/*/src/**/*.so"))
    for name in (*filter(None, listed.split("\0")), *built):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def _noticed(faults: list[Fault], tree: Path) -> dict[str, bool]:
    console = Console(stderr=True)
    found = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("faults", total=len(faults))
        for fault in faults:
            began = time.monotonic()
            found[fault.name] = is_noticed(fault, tree)
            progress.advance(task)
            outcome = "noticed" if found[fault.name] else "NOT NOTICED"
            console.print(f"{outcome} in {time.monotonic() - began:.0f} s: {fault.name}", highlight=False)
    return found


def is_noticed(fault: Fault, tree: Path) -> bool:
    """Whether a test fails for it; the tree is then as it was."""
    file = tree / fault.file
    sound = file.read_text()
    file.write_text(sound.replace(fault.old, fault.new))
    try:
        return any(_is_red(test, tree) for test in fault.tests)
    finally:
        file.write_text(sound)


def _is_red(test: str, tree: Path) -> bool:
    sources = [str(each) for each in (*tree.glob("*/src"), *tree.glob("*/*/src"))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    chosen = [test] if "::" in test else ["-m", "not heavy", test]  # one that is named is run however long it takes
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *chosen]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode not in (0, _FAILED):
        raise SystemExit(f"{test} cannot be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == _FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
