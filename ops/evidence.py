#!/usr/bin/env python3
"""Evidence of a machine for a change: the platform's tests, and five minutes of a long session whose gates are judged.

    python ops/evidence.py --output evidence.json        # attach the file to the change
    python ops/evidence.py --backend mlx                 # of a Mac: the suite and the session are MLX's
    python ops/evidence.py --print-server-cmd            # what serves the sessions
    python ops/evidence.py --print-4h-cmd                # what proves four hours of them, beside that server

The platform's tests are the conformance suite of a verifier backend: what may differ from one machine to another. Then
a local stack is started on free ports, `kakeya bench session` is run on it, and its report is checked here once more:
some KV was live, and every gate says `passed`. Only the standard library is needed; the Python that runs this must have
Kakeya installed, as after `make install`.

Exit status: 0 where everything holds, 1 where something does not, 2 where it could not be tried, 130 on Ctrl-C.
"""

import argparse
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

SCHEMA = "kakeya.evidence/1"
ROOT = Path(__file__).resolve().parent.parent
DEFAULT_SECONDS = 300
EXACT_BACKENDS = ("torch",)
"""Of the others no gate can ask for the same tokens again: a replay has other batches, which floats may show."""
STOP_SECONDS = 60
WINDOW = 236
"""Of kakeya-nano's sessions: they outgrow it within the first turns, so that the proof is of full lanes."""
ADDRESS = "127.0.0.1:50051"
_READY = re.compile(r"ready grpc=(\S+)")
_COUNTS = re.compile(r"\b\d+ (?:passed|failed|errors?|skipped|xfailed)\b.*")


class CannotTry(Exception):
    """What is needed is not there; the message says what."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    flags = _parser().parse_args(arguments)
    if flags.print_server_cmd:
        print(shlex.join(_server(flags, ADDRESS)))
        return 0
    if flags.print_4h_cmd:
        print(shlex.join([*_bench(flags, ADDRESS, Path("bench-4h")), "--preset", "4h"]))
        return 0
    try:
        document = _gather(flags)
    except CannotTry as error:
        print(f"evidence: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    flags.output.write_text(json.dumps(document, indent=2) + "\n")
    for problem in document["problems"]:
        print(f"evidence: {problem}", file=sys.stderr)
    print(f"{document['verdict']}: {flags.output}")
    return 0 if document["verdict"] == "holds" else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--output", type=Path, default=Path("evidence.json"), metavar="FILE", help="default: evidence.json")
    add("--seconds", type=int, default=DEFAULT_SECONDS, metavar="N", help=f"of the run (default: {DEFAULT_SECONDS})")
    add("--model", default="kakeya-nano", metavar="MODEL", help="an installed model or a directory with a tokenizer")
    add(
        "--backend",
        default="torch",
        metavar="NAME",
        help="verifier backend whose suite is run, and that serves the session (default: torch)",
    )
    add("--tests", nargs=argparse.REMAINDER, metavar="PYTEST_OPTION", default=["-m", "not heavy"],
        help="options of that suite, last on the line (default: -m 'not heavy')")  # fmt: skip
    add("--skip-tests", action="store_true", help="run no tests: the evidence says so")
    add("--junit", type=Path, metavar="FILE", help="run no tests: this file says how the suite ended, a moment ago")
    add("--print-server-cmd", action="store_true", help="print the command that serves the sessions, and end")
    add("--print-4h-cmd", action="store_true", help="print the command of a run of four hours, and end")
    return parser


def _gather(flags: argparse.Namespace) -> dict[str, Any]:
    """Everything that the file says. Raises CannotTry."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "change": _change(),
        "host": _host(),
        "platform_tests": _platform_tests(flags),
        "session": _run_session(flags),
    }
    document["problems"] = _problems(document)
    document["verdict"] = "does not hold" if document["problems"] else "holds"
    return document


def _problems(document: dict[str, Any]) -> list[str]:
    """What does not hold, in a line each."""
    problems = []
    tests, session = document["platform_tests"], document["session"]
    if tests and tests["exit_status"] != 0:
        problems.append(f"the platform's tests end with {tests['exit_status']}: {tests['summary']}")
    kv = session["kv_live_bytes"]
    if not kv or not kv["min"] > 0:
        problems.append(f"no KV was live in some turn: {kv}")
    problems += [
        f"{name} {gate['outcome']}: {gate['reason']}"
        for name, gate in session["gates"].items()
        if gate["outcome"] != "passed" and (name != "exact" or session["backend"] in EXACT_BACKENDS)
    ]
    if session["exit_status"] != 0 and not problems:
        problems.append(f"the bench ended with {session['exit_status']}")
    return problems


def _platform_tests(flags: argparse.Namespace) -> dict[str, Any] | None:
    if flags.junit:
        return _read_tests(flags.junit)
    return None if flags.skip_tests else _run_tests(flags)


def _read_tests(junit: Path) -> dict[str, Any]:
    """Of a run that is over. Where it left nothing it does not hold, and the session is measured all the same."""
    try:
        (suite,) = ElementTree.parse(junit).getroot().iter("testsuite")  # noqa: S314 - written here by pytest
        tests, failures, errors, skipped = (
            int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")
        )
    except (OSError, ElementTree.ParseError, KeyError, ValueError) as error:
        summary = f"{junit} does not say how they ended: {error}"
        return {"junit": str(junit), "exit_status": 2, "summary": summary, "seconds": 0.0}
    passed = tests - failures - errors - skipped
    return {
        "junit": str(junit),
        "exit_status": 1 if failures or errors or not tests else 0,
        "summary": f"{passed} passed, {failures} failed, {errors} errors, {skipped} skipped",
        "seconds": round(float(suite.attrib["time"]), 1),
    }


def _run_tests(flags: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "kakeya_worker.conformance", flags.backend, "-q", *flags.tests]
    _say(f"the platform's tests: {shlex.join(command)}")
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    counts = _COUNTS.findall(done.stdout)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return {
        "command": command[1:],
        "exit_status": done.returncode,
        "summary": counts[-1] if counts else "no test ran",
        "seconds": round(time.monotonic() - started, 1),
    }


def _run_session(flags: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kakeya-evidence-") as directory, _stack(flags) as address:
        command = [*_bench(flags, address, Path(directory)), "--duration-s", str(flags.seconds)]
        _say(f"{flags.seconds} s of a session: {shlex.join(command)}")
        status = subprocess.run(command).returncode
        try:
            report = json.loads((Path(directory) / "report.json").read_text())
        except (OSError, ValueError) as error:
            raise CannotTry(f"the bench ended with {status} and left no report: {error}") from error
    agg = report["agg"]
    return {
        "command": command[1:],
        "backend": flags.backend,
        "exit_status": status,
        "state": report["state"],
        "model": report["model"],
        "gates": report["gates"],
        **{name: agg[name] for name in ("num_turns", "num_errors", "turn_s", "kv_live_bytes", "worker_rss_bytes")},
    }


@contextmanager
def _stack(flags: argparse.Namespace) -> Iterator[str]:
    """A local stack of its own; gives the router's address. Raises CannotTry."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(_server(flags, "127.0.0.1:0"), stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield _ready(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _ready(process: "subprocess.Popen[str]", log: Any) -> str:
    for line in process.stdout or ():  # it gives up by itself where it cannot start
        if found := _READY.search(line):
            return found[1]
    log.seek(0)
    raise CannotTry(f"the stack did not start:\n{log.read()}")


def _server(flags: argparse.Namespace, address: str) -> list[str]:
    return [
        sys.executable, "-m", "kakeya", "up", "--ephemeral", "--model", flags.model, "--worker", flags.backend,
        "--window", str(WINDOW), "--bind", address, "--http-bind", "none",
    ]  # fmt: skip


def _bench(flags: argparse.Namespace, address: str, output: Path) -> list[str]:
    exact = ["--exact"] if flags.backend in EXACT_BACKENDS else []
    return [sys.executable, "-m", "kakeya", "bench", "session", "--address", address, "--output", str(output), *exact]


def _change() -> dict[str, Any]:
    """The commit that is judged, and whether files differ from it; empty outside of a checkout."""
    commit = _git("rev-parse", "HEAD")
    return {"commit": commit, "has_local_edits": bool(_git("status", "--porcelain"))} if commit else {}


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _host() -> dict[str, Any]:
    known = {each.metadata["Name"]: each.version for each in distributions()}
    wanted = ("grpcio", "kakeya", "kakeya-worker", "mlx", "mlx-lm", "numpy", "torch", "transformers")
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "num_processors": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "python": platform.python_version(),
        "versions": {name: known[name] for name in wanted if name in known},
    }


def _processor() -> str:
    """Its name, where the system tells it."""
    if sys.platform == "darwin":
        said = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        return said.stdout.strip()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _memory_bytes() -> int | None:
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _say(line: str) -> None:
    print(f"evidence: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
