"""Exactness as clients see it: who is exact, under which fingerprint, and the same bits on another worker."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import kakeya
from tests.integration.processes import Runtime, runtime


@pytest.fixture(scope="module")
def mixed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Two exact workers of different batch sizes and one of floats, in one pool."""
    with runtime(model, tmp_path_factory.mktemp("mixed"), num_workers=0) as made:
        made.start_worker("--weights", "int8")
        made.start_worker("--weights", "int8", "--chunk-tokens", "7", "--threads", "2")
        made.start_worker("--weights", "float32")
        made.wait_for_workers(3)
        yield made


@pytest.fixture
async def client(mixed: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(mixed.address) as client:
        yield client


def _fingerprints(mixed: Runtime) -> dict[str, str]:
    """By the mode of the weights."""
    return {worker.weights: worker.fingerprint for worker in mixed.list_workers()}


async def test_workers_say_what_they_are(mixed: Runtime) -> None:
    workers = mixed.list_workers()
    assert sorted((worker.weights, worker.dtype, worker.exact) for worker in workers) == [
        ("float32", "float32", False),
        ("int8", "bfloat16", True),
        ("int8", "bfloat16", True),
    ]
    assert len({worker.fingerprint for worker in workers}) == 2


@pytest.mark.parametrize("weights", ["int8", "float32"])
async def test_sessions_are_placed_by_fingerprint(mixed: Runtime, client: kakeya.AsyncClient, weights: str) -> None:
    fingerprint = _fingerprints(mixed)[weights]
    of_worker = {worker.worker_id: worker.fingerprint for worker in mixed.list_workers()}
    for _ in range(4):
        async with await client.create_session(fingerprint=fingerprint) as session:
            assert (session.fingerprint, session.exact) == (fingerprint, weights == "int8")
            info = await session.info()
            assert (info.fingerprint, info.exact) == (fingerprint, weights == "int8")
            assert of_worker[info.worker] == fingerprint


async def test_a_fingerprint_that_nobody_has(client: kakeya.AsyncClient) -> None:
    with pytest.raises(kakeya.NoWorker, match="fingerprint"):
        await client.create_session(fingerprint="0" * 64)


async def test_the_same_bits_on_another_worker(mixed: Runtime, client: kakeya.AsyncClient) -> None:
    """Log-probabilities are floats of the raw logits: one bit off in any layer would show in some of them."""
    exact = _fingerprints(mixed)["int8"]
    streams: dict[str, list[tuple[int, float | None]]] = {}
    async with AsyncExitStack() as stack:
        for appends in ([200], [1, 50, 149], [100, 100], [13] * 15 + [5]):
            session = await stack.enter_async_context(await client.create_session(fingerprint=exact))
            start = 0
            for size in appends:
                await session.append(range(start, start + size))
                start += size
            worker = (await session.info()).worker
            async with session.generate(max_tokens=40, temperature=1.2, seed=9, logprobs=0) as generation:
                tokens = [token async for token in generation]
            stream = [(detail.token_id, detail.logprob) for detail in generation.details]
            assert [token for token, _ in stream] == tokens
            assert streams.setdefault(worker, stream) == stream
    assert len(streams) == 2, "both exact workers were used"
    one, other = streams.values()
    assert one == other
