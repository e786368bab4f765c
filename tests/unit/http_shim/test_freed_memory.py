import asyncio
from unittest.mock import patch

from kakeya_http_shim import freed_memory
from kakeya_http_shim.freed_memory import FreedMemory
from tests.unit.http_shim.served import eventually


async def test_what_many_leave_at_once_is_given_back_once() -> None:
    memory = FreedMemory()
    given_back: list[int] = []
    with (
        patch.object(freed_memory, "_malloc_trim", given_back.append),
        patch.object(freed_memory, "_AFTER_SECONDS", 0.01),
    ):
        for times in (1, 2):
            memory.give_back_soon()
            memory.give_back_soon()
            await eventually(lambda times=times: len(given_back) >= times)
        await asyncio.sleep(0.05)
    assert given_back == [0, 0]
