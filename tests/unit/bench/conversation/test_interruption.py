"""Signals, real ones, while a bench works."""

import asyncio
import os
import signal
import subprocess
import sys
from signal import SIGINT, SIGTERM, Signals

import pytest

from kakeya_bench.conversation import interruption
from tests.unit.sdk.sleeping import wakes_for

PROGRAM = """
import asyncio, sys
from kakeya_bench.conversation import interruption

async def work():
    try:
        print("working", flush=True)
        await asyncio.sleep(600)
    finally:
        print("leaving", flush=True)
        await asyncio.sleep(600)

async def bench():
    with interruption.heeded() as heeded:
        await heeded.cuts_short(work())

asyncio.run(bench())
"""


async def interrupted(number: Signals = SIGINT) -> None:
    """Work during which a signal comes."""
    os.kill(os.getpid(), number)
    await asyncio.sleep(60)


@pytest.mark.parametrize(("first", "second"), [(SIGINT, SIGINT), (SIGINT, SIGTERM), (SIGTERM, SIGINT)])
def test_the_second_signal_ends_a_process_as_ever(first: Signals, second: Signals) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for said, number in (("working\n", first), ("leaving\n", second)):
            assert process.stdout.readline() == said
            process.send_signal(number)
        assert process.wait(60) == -second


async def test_the_second_signal_wakes_a_bench_that_leaves() -> None:
    woken: list[bool] = []

    async def work() -> None:
        try:
            await interrupted()
        finally:
            woken.append(await wakes_for(SIGTERM))

    with interruption.heeded() as heeded:
        assert await heeded.cuts_short(work()) is True
    assert (woken, heeded.exit_status) == ([True], 130)


async def test_without_a_signal_work_is_done() -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.append("work")

    with interruption.heeded() as heeded:
        assert await heeded.cuts_short(work()) is False
        assert await heeded.cuts_short(work()) is False, "and more of it"
    assert (done, heeded.signal, heeded.exit_status) == (["work", "work"], None, None)


async def test_a_signal_before_work_leaves_none_of_it() -> None:
    with interruption.heeded() as heeded:
        os.kill(os.getpid(), SIGINT)
        await asyncio.sleep(0.01)
        assert heeded.signal == SIGINT
        async with asyncio.timeout(50):
            assert await heeded.cuts_short(asyncio.sleep(60)) is True


async def test_what_work_raises_passes_whether_or_not_a_signal_came() -> None:
    async def fail() -> None:
        raise ValueError("no place for the report")

    async def fail_on_the_way_out() -> None:
        try:
            await interrupted(SIGTERM)
        finally:
            await fail()

    async def be_cancelled() -> None:
        raise asyncio.CancelledError

    for work, kind in ((fail, ValueError), (be_cancelled, asyncio.CancelledError), (fail_on_the_way_out, ValueError)):
        with interruption.heeded() as heeded, pytest.raises(kind):
            await heeded.cuts_short(work())
        assert heeded.exit_status == (143 if work is fail_on_the_way_out else None)


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
        await asyncio.wait_for(left.wait(), 50)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, lambda number, frame: None])
async def test_handlers_are_as_they_were(handler: signal.Handlers) -> None:
    before = {number: signal.signal(number, handler) for number in (SIGINT, SIGTERM)}

    def handlers() -> set[object]:
        return {signal.getsignal(number) for number in before}

    try:
        with pytest.raises(KeyError), interruption.heeded():
            assert handler not in handlers()
            raise KeyError
        assert handlers() == {handler}
        with interruption.heeded() as heeded:
            os.kill(os.getpid(), SIGTERM)
            await asyncio.sleep(0.01)
            assert heeded.signal == SIGTERM
            assert handlers() == {handler}, "the next one, of either kind, ends the process as ever"
        assert handlers() == {handler}
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
