"""What `make bench-sdk-typescript` has the Python SDK do: its twin does the same in sdks/typescript/tests/bench.

python -m tests.benchmarks.calls.sdk_client HOST:PORT
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import kakeya

_MAX_TOKENS = 65_536


async def stream(session: kakeya.AsyncSession, *, num_tokens: int) -> dict[str, Any]:
    """A stream to its end."""
    number = 0
    async for _ in session.turn([1, 2, 3], max_tokens=num_tokens, ignore_eos=True):
        number += 1
    return {"num_tokens": number}


async def leave(session: kakeya.AsyncSession, *, after: int, pauses_seconds: Sequence[float]) -> dict[str, Any]:
    """Leaves a loop after so many tokens; how long the history is after each of these pauses."""
    await session.append([1, 2, 3])
    number, left_at = 0, 0.0
    async with session.generate(max_tokens=_MAX_TOKENS, ignore_eos=True) as generation:
        async for _ in generation:
            number += 1
            if number == after:
                left_at = time.time()
                break
    history_lengths = []
    for seconds in pauses_seconds:
        await asyncio.sleep(seconds)
        history_lengths.append((await session.info()).history_length)
    return {"session_id": session.id, "left_at": left_at, "num_seen": 3 + number, "history_lengths": history_lengths}


async def main() -> None:
    doing: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {"stream": stream, "leave": leave}
    loop = asyncio.get_running_loop()
    async with kakeya.AsyncClient(sys.argv[1]) as client:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            asked = json.loads(line)
            async with await client.create_session() as session:
                answer = await doing[asked.pop("do")](session, **asked)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
