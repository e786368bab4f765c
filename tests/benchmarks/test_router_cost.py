"""`make bench-router` on two routers of this tree, without what it says about them: other tests may run beside it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.benchmarks import router_cost
from tests.benchmarks.installed_router import commit_of
from tests.benchmarks.logged_command import CommandFailed
from tests.benchmarks.router_cost import CALLS, GROUP, Pair, Side

BURN = """
import threading, time
def burn():
    while time.thread_time() < 0.3:
        pass
thread = threading.Thread(target=burn)
thread.start()
thread.join()
print(flush=True)
input()
"""
linux = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="another process's clock is read on Linux")


@linux
def test_processor_time_is_that_of_all_threads_that_there_were() -> None:
    process = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    process.stdout.readline()
    taken = router_cost.cpu_seconds(process.pid)
    process.stdin.close()
    process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert 0.3 <= taken <= used.ru_utime + used.ru_stime + 0.01  # the system counts these in ticks


def _pair(ratio: float) -> Pair:
    def side(factor: float) -> Side:
        return Side(0, None, {name: [0.01 * factor] for name in CALLS}, {name: [0.002] * GROUP for name in CALLS})

    return side(1.0), side(ratio)


def test_the_verdict_is_the_upper_end_of_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    even = router_cost.figures([_pair(2.0), _pair(0.5)])["Generate"]
    assert even["ratio"] == pytest.approx(1.0)
    assert even["interval_95"] == pytest.approx([0.5, 2.0])
    assert not router_cost.is_kept(even)
    found = router_cost.figures([_pair(1.04)] * 3)
    assert found["Generate"]["interval_95"] == pytest.approx([1.04, 1.04])
    assert all(map(router_cost.is_kept, found.values()))
    assert found["AppendTokens"]["cpu_ms"]["base"] == pytest.approx(10 / GROUP)
    assert found["AppendTokens"]["wall_p50_ms"] == pytest.approx({"base": 2.0, "here": 2.0})
    router_cost.show({"dear": even, **found}, Console(width=250))
    printed = capsys.readouterr().out
    assert (printed.count("BROKEN"), printed.count("kept")) == (1, 3)


def test_what_is_no_commit_is_said() -> None:
    with pytest.raises(CommandFailed, match="'no-such-commit' is no commit"):
        commit_of("no-such-commit")


@linux
@pytest.mark.heavy
def test_both_routers_are_measured(tmp_path: Path) -> None:
    python = Path(sys.executable)
    (pair,) = router_cost.measure([python, python], tmp_path, num_pairs=1, num_groups=1)
    for side in pair:
        for name in CALLS:
            assert len(side.wall_seconds[name]) == 2 * GROUP
            assert min(side.cpu_seconds[name]) > 0.0
