"""A client that stops reading: its row at the worker pauses after the tokens that fit on the way, and goes on later."""

import kakeya
from tests.integration.processes import settled

NUM_HOPS = 2
CREDITS = 64
NUM_READ = 10


async def _generate(client: kakeya.AsyncClient, max_tokens: int) -> None:
    """A session of somebody else's, that is read to its end."""
    async with await client.create_session() as session:
        await session.append(range(10))
        async with session.generate(max_tokens=max_tokens) as generation:
            assert len([token async for token in generation]) == max_tokens


async def test_what_is_not_read_is_not_generated(client: kakeya.AsyncClient) -> None:
    async with await client.create_session() as session:
        await session.append(range(10))
        async with session.generate(max_tokens=5000) as generation:
            num_read = 0
            async for _ in generation:
                num_read += 1
                if num_read == NUM_READ:
                    await _generate(client, 200)  # time enough for as many tokens of the other
                    break
            generation.cancel()
        num_ahead = (await settled(session)).history_length - 10 - NUM_READ
        assert CREDITS < num_ahead <= NUM_HOPS * CREDITS + 8


async def test_a_slow_reader_gets_every_token(client: kakeya.AsyncClient) -> None:
    async with await client.create_session() as session:
        await session.append(range(10))
        num_read = 0
        async with session.generate(max_tokens=200) as generation:
            async for _ in generation:
                num_read += 1
                if num_read == NUM_READ:
                    await _generate(client, 100)
        assert num_read == 200
        assert generation.done is not None
        assert generation.done.history_length == 210
