"""Ports of tests: no two processes have the same, and a process has one again after all others."""

import subprocess
import sys

from tests.house.packages import ROOT
from tests.ports import free_port

PROGRAM = "from tests.ports import free_port; print(*(free_port() for _ in range(150)), flush=True); input()"


def test_two_processes_have_ports_of_their_own() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout is not None
        theirs = [int(port) for port in other.stdout.readline().split()]
        ours = [free_port() for _ in range(150)]
        other.communicate("\n")
    assert len({*ours, *theirs}) == 300
