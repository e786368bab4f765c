import asyncio
from unittest.mock import patch

from kakeya_http_shim.middleware import freed_memory
from kakeya_http_shim.middleware.freed_memory import FreedMemory


async def test_what_many_leave_at_once_is_given_back_once() -> None:
    memory = FreedMemory()
    given_back: list[int] = []
    with (
        patch.object(freed_memory, "_malloc_trim", given_back.append),
        patch.object(freed_memory, "_AFTER_SECONDS", 0.01),
    ):
        for _ in range(2):
            num_before = len(given_back)
            memory.give_back_soon()
            memory.give_back_soon()
            while len(given_back) == num_before:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
    assert given_back == [0, 0]
