"""Signals, real ones, while a bench works."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from signal import SIGINT, SIGTERM, Signals

import pytest

from kakeya.bench import interruption
from tests.unit.sdk.sleeping import wakes_for

PROGRAM = """
import asyncio, sys
from kakeya.bench import interruption

async def work():
    try:
        print("working", flush=True)
        await asyncio.sleep(60)
    finally:
        print("leaving", flush=True)
        await asyncio.sleep(float(sys.argv[1]))
        print("left", flush=True)

async def bench():
    with interruption.heeded() as heeded:
        print("cut short" if await heeded.cuts_short(work()) else "done", flush=True)
    return heeded.exit_status

sys.exit(asyncio.run(bench()))
"""


Start = Callable[[float], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the program, which is at work then, and takes so many seconds to leave."""
    started: list[subprocess.Popen[str]] = []

    def start(leaving_seconds: float) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PROGRAM, str(leaving_seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "status"), [(SIGINT, 130), (SIGTERM, 143)])
def test_a_signal_ends_a_process_in_order(start: Start, number: Signals, status: int) -> None:
    process = start(0.01)
    process.send_signal(number)
    output, errors = process.communicate(timeout=20)
    assert (output, errors) == ("leaving\nleft\ncut short\n", "")
    assert process.returncode == status


@pytest.mark.parametrize("first", [SIGINT, SIGTERM])
@pytest.mark.parametrize("second", [SIGINT, SIGTERM])
def test_the_second_signal_ends_it_as_ever(start: Start, first: Signals, second: Signals) -> None:
    process = start(60)
    process.send_signal(first)
    assert process.stdout is not None
    assert process.stdout.readline() == "leaving\n"
    process.send_signal(second)
    output, _ = process.communicate(timeout=20)
    assert output == ""
    assert process.returncode == -second


async def test_the_second_signal_wakes_a_bench_that_leaves() -> None:
    woken: list[bool] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), SIGINT)
            await asyncio.sleep(60)
        finally:
            woken.append(await wakes_for(SIGTERM))

    with interruption.heeded() as heeded:
        assert await heeded.cuts_short(work()) is True
    assert woken == [True]


async def test_without_a_signal_work_is_done() -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.append("work")

    with interruption.heeded() as heeded:
        assert await heeded.cuts_short(work()) is False
        assert await heeded.cuts_short(work()) is False, "and more of it"
    assert done == ["work", "work"]
    assert (heeded.signal, heeded.exit_status) == (None, None)


@pytest.mark.parametrize(("number", "status"), [(SIGINT, 130), (SIGTERM, 143)])
async def test_a_signal_cancels_work_and_is_told(number: Signals, status: int) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            seen.append("cleaned up")
            raise

    with interruption.heeded() as heeded:
        assert await heeded.cuts_short(work()) is True
        assert seen == ["cleaned up"], "it has waited for that"
    assert (heeded.signal, heeded.exit_status) == (number, status)


async def test_a_signal_before_work_leaves_none_of_it() -> None:
    async def work() -> None:
        await asyncio.sleep(60)

    with interruption.heeded() as heeded:
        os.kill(os.getpid(), SIGINT)
        await asyncio.sleep(0.01)
        assert heeded.signal == SIGINT
        async with asyncio.timeout(5):
            assert await heeded.cuts_short(work()) is True


async def test_what_work_raises_passes() -> None:
    async def fail() -> None:
        raise ValueError("no such thing")

    async def fail_in_a_group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            tasks.create_task(asyncio.sleep(60))

    with interruption.heeded() as heeded:
        with pytest.raises(ValueError, match="no such thing"):
            await heeded.cuts_short(fail())
        with pytest.raises(ExceptionGroup) as raised:
            await heeded.cuts_short(fail_in_a_group())
    assert [str(error) for error in raised.value.exceptions] == ["no such thing"]
    assert heeded.exit_status is None


async def test_work_that_is_cancelled_by_somebody_else_is_not_done() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with interruption.heeded() as heeded, pytest.raises(asyncio.CancelledError):
        await heeded.cuts_short(work())


async def test_what_work_raises_as_it_is_cut_short_passes() -> None:
    async def fail_on_the_way_out() -> None:
        try:
            os.kill(os.getpid(), SIGTERM)
            await asyncio.sleep(60)
        finally:
            raise ValueError("no place for the report")

    with interruption.heeded() as heeded:
        with pytest.raises(ValueError, match="no place for the report"):
            await heeded.cuts_short(fail_on_the_way_out())
        assert heeded.exit_status == 143


async def test_what_work_raises_in_the_moment_of_the_signal_passes() -> None:
    with interruption.heeded() as heeded:

        async def fail() -> None:
            heeded.come(SIGINT)
            raise ValueError("too late")

        with pytest.raises(ValueError, match="too late"):
            await heeded.cuts_short(fail())


async def test_whoever_waits_for_work_may_be_cancelled() -> None:
    left = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            left.set()

    with interruption.heeded() as heeded:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await heeded.cuts_short(work())
        await asyncio.wait_for(left.wait(), 5)


class _Stop(Exception):
    """Raised inside the context."""


@pytest.mark.parametrize("handler", [signal.SIG_DFL, lambda number, frame: None])
async def test_handlers_are_as_they_were(handler: signal.Handlers) -> None:
    before = {number: signal.signal(number, handler) for number in (SIGINT, SIGTERM)}
    try:
        with interruption.heeded():
            assert signal.getsignal(SIGINT) != handler
            assert signal.getsignal(SIGTERM) != handler
        assert (signal.getsignal(SIGINT), signal.getsignal(SIGTERM)) == (handler, handler)
        with pytest.raises(_Stop), interruption.heeded():
            raise _Stop
        assert (signal.getsignal(SIGINT), signal.getsignal(SIGTERM)) == (handler, handler)
        with interruption.heeded() as heeded:
            os.kill(os.getpid(), SIGTERM)
            await asyncio.sleep(0.01)
            assert heeded.signal == SIGTERM
            # The next one, of either kind, ends the process as ever.
            assert (signal.getsignal(SIGINT), signal.getsignal(SIGTERM)) == (handler, handler)
    finally:
        for number, was in before.items():
            signal.signal(number, was)


async def test_an_ignored_signal_is_ignored_on() -> None:
    """A job that a script put in the background is not ended by the Ctrl-C of who works in the foreground."""
    before = signal.signal(SIGINT, signal.SIG_IGN)
    try:
        with interruption.heeded() as heeded:
            os.kill(os.getpid(), SIGINT)
            assert not await heeded.cuts_short(asyncio.sleep(0.05))
        assert heeded.exit_status is None
        assert signal.getsignal(SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(SIGINT, before)
