"""A background loop that outlives whatever one of its passes stumbles over."""

import asyncio

import pytest
import structlog

from kakeya_shared.process.endured_loop import endured_loop


class Away(Exception):
    """Says that a pass cannot be made now."""


async def logged(*outcomes: Exception | None) -> list[tuple[str, str]]:
    """Levels and events of a loop whose passes end like this, and which is cancelled in the last one."""
    left, is_last = list(outcomes), asyncio.Event()

    async def make_pass() -> None:
        if not left:
            is_last.set()
            await asyncio.Event().wait()
        if (outcome := left.pop(0)) is not None:
            raise outcome

    with structlog.testing.capture_logs() as logs:
        loop = asyncio.create_task(endured_loop("the test", make_pass, interval_seconds=0, put_off_by=(Away,)))
        await is_last.wait()
        loop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loop
    return [(line["log_level"], line["event"]) for line in logs]


async def test_it_goes_on_whatever_a_pass_raises() -> None:
    failed = ("error", "the test has failed and goes on")
    assert await logged(None, ValueError("x"), None, LookupError("y"), ValueError("z")) == [failed] * 3


async def test_what_puts_off_several_passes_is_logged_once() -> None:
    put_off = ("info", "the test is put off")
    assert await logged(Away(), Away("still"), Away()) == [put_off]
    assert await logged(Away("first"), None, Away("second"), Away()) == [put_off] * 2


async def test_it_pauses_after_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    pause = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError
        await pause(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await endured_loop("the test", lambda: pause(0), interval_seconds=7, put_off_by=())
    assert pauses == [7, 7, 7]
