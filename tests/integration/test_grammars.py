"""Answers under a grammar through the whole runtime: the same alone, in a batch, and after whatever happens to them."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import kakeya
from kakeya import Grammar
from kakeya_worker.conformance.tools.tokenizer_files import NUM_TOKENS, token_text, write_tokenizer
from tests.integration.processes import Process, Runtime, runtime
from tests.random_checkpoint import save_random_checkpoint

ROUTER_FLAGS = ("--heartbeat-interval-seconds=0.3", "--reap-interval-seconds=0.2", "--recovery-seconds=0.1")
PROMPT = list(range(20, 60))
END = NUM_TOKENS - 2
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 90, "maxLength": 120},
        "kinds": {"type": "array", "items": {"enum": ["cat", "dog"]}, "minItems": 3, "maxItems": 9},
        "age": {"type": "integer", "minimum": 0, "maximum": 40},
    },
    "required": ["name", "kinds", "age"],
    "additionalProperties": False,
}
ASKED: dict[str, Any] = {
    "max_tokens": 600,
    "temperature": 1.0,
    "seed": 7,
    "frequency_penalty": 0.25,
    "grammar": Grammar.json_schema(SCHEMA),
}


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights with a tokenizer."""
    directory = save_random_checkpoint(tmp_path_factory.mktemp("speaking") / "demo")
    write_tokenizer(directory)
    return directory


@pytest.fixture
def fragile(speaking: Path, tmp_path: Path) -> Iterator[Runtime]:
    """Two workers with one snapshot store."""
    environment = {
        "KAKEYA_WORKER_SNAPSHOTS": str(tmp_path / "snapshots"),
        "KAKEYA_WORKER_SHUTDOWN_GRACE_SECONDS": "0.2",
    }
    with runtime(speaking, tmp_path, num_workers=2, router_flags=ROUTER_FLAGS, environment=environment) as made:
        yield made


@pytest.fixture
async def client(fragile: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(fragile.address) as client:
        yield client


async def prompted(client: kakeya.AsyncClient) -> kakeya.AsyncSession:
    session = await client.create_session(eos_token_ids=[END])
    await session.append(PROMPT)
    return session


async def answer(session: kakeya.AsyncSession, disturb: Any = None) -> list[int]:
    """Disturbed after its 40th token."""
    async with session.generate(**ASKED) as generation:
        token_ids = []
        async for token_id in generation:
            token_ids.append(token_id)
            if disturb is not None and len(token_ids) == 40:
                await disturb(session)
    return token_ids


async def worker_of(fragile: Runtime, session: kakeya.AsyncSession) -> Process:
    worker_id = (await session.info()).worker
    return next(each for each in fragile.workers if worker_id.endswith(each.address.split(":")[1]))


def checked(token_ids: list[int]) -> list[int]:
    """An answer that is of the schema."""
    assert token_ids[-1] == END
    value = json.loads(token_text(token_ids[:-1]))
    assert list(value) == ["name", "kinds", "age"]
    assert set(value["kinds"]) <= {"cat", "dog"}
    assert 3 <= len(value["kinds"]) <= 9
    assert 0 <= value["age"] <= 40
    return token_ids


async def test_it_is_the_same_alone_in_a_batch_and_after_its_worker_is_lost(
    fragile: Runtime, client: kakeya.AsyncClient
) -> None:
    async def kill(session: kakeya.AsyncSession) -> None:
        os.kill((await worker_of(fragile, session)).process.pid, signal.SIGKILL)

    alone = checked(await answer(await prompted(client)))
    assert len(set(alone)) > 30
    others = [await prompted(client) for _ in range(3)]
    free = [other.generate(max_tokens=300, temperature=1.0, seed=number) for number, other in enumerate(others)]
    together = await asyncio.gather(answer(await prompted(client)), *(generation.all() for generation in free))
    assert together[0] == alone
    for other in others:
        await other.close()
    killed = await prompted(client)
    assert await answer(killed, kill) == alone
    assert (await killed.info()).epoch > 1


async def test_it_is_the_same_after_its_session_is_parked_and_moved(
    fragile: Runtime, client: kakeya.AsyncClient
) -> None:
    async def leave(session: kakeya.AsyncSession) -> None:
        os.kill((await worker_of(fragile, session)).process.pid, signal.SIGTERM)

    expected = checked(await answer(await prompted(client)))
    parked = await prompted(client)
    await parked.park()
    assert await answer(parked) == expected
    moved = await prompted(client)
    assert await answer(moved, leave) == expected


async def test_another_router_goes_on_with_it(fragile: Runtime) -> None:
    first, other = [fragile.start_router(*ROUTER_FLAGS) for _ in range(2)]
    async with kakeya.AsyncClient(f"ipv4:{first.address},{other.address}") as client:

        async def kill(session: kakeya.AsyncSession) -> None:
            first.kill()

        expected = checked(await answer(await prompted(client)))
        assert await answer(await prompted(client), kill) == expected


HOSTILE = {
    "unknown": Grammar.json_schema({"not": {"type": "string"}}),
    "text": Grammar.json_schema('true}, {"lark_grammar": "start: /.*/"'),
    "deep": Grammar.json_schema('{"items":' * 5000 + "true" + "}" * 5000),
    "wide": Grammar.regex("|".join(f"[a-z]{{{number}}}.*{number}" for number in range(2000))),
    "lark": Grammar.lark("start: start"),
    "long": Grammar.lark("x" * (1 << 18) + "y"),
}


@pytest.mark.parametrize("grammar", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_grammar_hurts_nobody(
    hostile: Runtime, hostile_client: kakeya.AsyncClient, grammar: Grammar
) -> None:
    """It is refused or does what it says; what others generate meanwhile is what it would be."""
    async with await prompted(hostile_client) as undisturbed:
        expected = await undisturbed.generate(max_tokens=100).all()
    async with await prompted(hostile_client) as other:
        generating = asyncio.ensure_future(other.generate(max_tokens=100).all())
        for _ in range(3):
            async with await prompted(hostile_client) as session:
                try:
                    await session.turn([5], max_tokens=30, grammar=grammar).all()
                except kakeya.InvalidField as error:
                    assert error.metadata["field"].startswith("grammar.")
                    assert len(str(error)) < 1000
                    assert (await session.info()).history_length == len(PROMPT)
        assert await generating == expected
    assert not [each for each in hostile.workers if each.process.poll() is not None]


@pytest.fixture(scope="module")
def hostile(speaking: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with runtime(speaking, tmp_path_factory.mktemp("logs"), num_workers=1) as made:
        yield made


@pytest.fixture
async def hostile_client(hostile: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(hostile.address) as client:
        yield client


async def test_without_a_tokenizer_it_is_refused(shared_runtime: Runtime) -> None:
    async with (
        kakeya.AsyncClient(shared_runtime.address) as client,
        await client.create_session(eos_token_ids=[7]) as session,
    ):
        await session.append(PROMPT)
        with pytest.raises(kakeya.InvalidField, match=r"brings no tokenizer\.json"):
            await session.generate(max_tokens=3, grammar=Grammar.regex("a")).all()
        assert len(await session.generate(max_tokens=3).all()) == 3
