"""A bound process ends with its parent, and Ctrl-C is a cancel that comes once."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time

import psutil
import pytest

from kakeya_local.signals import cancelled_by_signals
from kakeya_local.stack.supervision import bound_process

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")


def test_it_becomes_the_command() -> None:
    show = "import os; print(os.getpid(), os.environ['KAKEYA_PARENT_PID'])"
    with subprocess.Popen(bound_process.command(sys.executable, "-c", show), stdout=subprocess.PIPE) as process:
        output, _ = process.communicate()
    assert output.split() == [str(process.pid).encode()] * 2
    assert process.returncode == 0


@linux
def test_it_ends_when_its_parent_is_killed() -> None:
    parent_script = (
        f"import subprocess; print(subprocess.Popen({bound_process.command(*SLEEP)!r}).pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent_script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        assert parent.stdout.readline() == b"up\n"
        parent.kill()
        parent.wait()
    assert psutil.wait_procs([child], timeout=60)[1] == []


@linux
def test_it_does_not_start_when_its_parent_is_dead_already() -> None:
    environment = os.environ | {bound_process.PARENT_VARIABLE: "1"}
    done = subprocess.run(bound_process.command(*SLEEP), env=environment, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
async def test_a_signal_that_is_ignored_at_the_start_stays_ignored(ignored: signal.Signals) -> None:
    before = signal.signal(ignored, signal.SIG_IGN)
    try:
        with cancelled_by_signals():
            os.kill(os.getpid(), ignored)
            for _ in range(10):
                await asyncio.sleep(0.01)  # would be cancelled here
        assert signal.getsignal(ignored) is signal.SIG_IGN
    finally:
        signal.signal(ignored, before)


def test_sigterm_ends_a_bound_process_whatever_its_parent_ignores() -> None:
    command = shlex.join(bound_process.command(*SLEEP))
    with subprocess.Popen(["sh", "-c", f"trap '' TERM; exec {command}"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.terminate()
        assert process.wait(timeout=60) == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_the_first_signal_cancels_and_the_next_spares_the_cleanup(number: signal.Signals) -> None:
    cleaned_up = False

    async def program() -> None:
        nonlocal cleaned_up
        with cancelled_by_signals():
            try:
                await asyncio.sleep(30)
            finally:
                os.kill(os.getpid(), number)
                await asyncio.sleep(0.1)
                cleaned_up = True

    task = asyncio.ensure_future(program())
    await asyncio.sleep(0)
    started = time.monotonic()
    os.kill(os.getpid(), number)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned_up
    assert time.monotonic() - started < 10
