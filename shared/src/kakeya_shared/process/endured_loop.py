"""A background loop that outlives whatever one of its passes stumbles over."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

_log = structlog.get_logger()


async def endured_loop(
    name: str,
    make_pass: Callable[[], Awaitable[object]],
    *,
    interval_seconds: float,
    put_off_by: tuple[type[Exception], ...],
) -> NoReturn:
    """Makes one pass after another until it is cancelled.

    Args:
        name: of what passes, for the log.
        interval_seconds: from the end of a pass to the next.
        put_off_by: errors that only say that nothing can be done now; of several passes in a row the first is logged.
    """
    is_put_off = False
    while True:
        try:
            await make_pass()
            is_put_off = False
        except put_off_by as error:
            if not is_put_off:
                _log.info(f"{name} is put off", reason=str(error) or repr(error))
            is_put_off = True
        except Exception:  # one that nobody foresaw must not be the last
            _log.exception(f"{name} has failed and goes on")
        await asyncio.sleep(interval_seconds)
