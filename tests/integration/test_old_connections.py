"""Connections that take no new calls after a while: clients go to others, and no call notices."""

import asyncio
from pathlib import Path

import pytest

import kakeya
from tests.integration.processes import runtime

AGE_SECONDS, NUM_CLIENTS, NUM_TURNS = 0.2, 6, 15
NUM_LONG = 1_500  # tokens: several ages long


@pytest.mark.heavy
async def test_clients_of_old_connections_notice_nothing(model: Path, tmp_path: Path) -> None:
    async def converse(address: str) -> list[list[int]]:
        async with kakeya.AsyncClient(address) as client, await client.create_session() as session:
            answers = [
                await session.turn(range(9), max_tokens=4, temperature=1.0, seed=1).all() for _ in range(NUM_TURNS)
            ]
            assert (await session.info()).history_length == NUM_TURNS * 13
            return answers

    async def answer_at_length(address: str) -> list[int]:
        async with kakeya.AsyncClient(address) as client, await client.create_session() as session:
            return await session.turn(range(40), max_tokens=NUM_LONG, ignore_eos=True, temperature=1.0, seed=1).all()

    with runtime(model, tmp_path, router_flags=(f"--max-connection-age-seconds={AGE_SECONDS}",)) as made:
        lasting = made.start_router()
        expected, expected_long = await converse(lasting.address), await answer_at_length(lasting.address)
        *found, found_long = await asyncio.gather(
            *(converse(made.address) for _ in range(NUM_CLIENTS)), answer_at_length(made.address)
        )
    assert found == [expected] * NUM_CLIENTS
    assert found_long == expected_long
    assert len(set(expected_long)) > 50
